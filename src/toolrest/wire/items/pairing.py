"""Pairing of calls and outputs: in a request each call has exactly one output, after its group.

A group is one reply of a model: reasoning, text and calls, up to the first item that is
not the model's. All three APIs take a history in which the outputs of a group's calls follow the
group in call order, so that is what is made of any history, however it was broken off.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from toolrest.items import JSONObject
from toolrest.wire.items.json_text import dumps

OUTPUT_OF: Final = {
    "function_call": "function_call_output",
    "local_shell_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "view_image_call": "view_image_call_output",
    "web_search_call": "web_search_call_output",
}
OUTPUTS: Final = frozenset(OUTPUT_OF.values())
ABORTED: Final = "aborted"

_LONGEST_ID: Final = 64
_PRINTABLE: Final = re.compile(r"[!-~]{1,64}")
_WORD: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NINE: Final = re.compile(r"[A-Za-z0-9]{9}")
_NOT_WORD: Final = re.compile(r"[^A-Za-z0-9_-]+")

Legal: TypeAlias = Callable[[str], str]
"""An id as a wire takes it."""


def is_call(item: JSONObject) -> bool:
    """Whether this item needs an output. A search that the server does itself needs none."""
    kind = item.get("type")
    if kind == "web_search_call":
        waiting = item.get("status") not in ("completed", "failed")
        return waiting and isinstance(item.get("call_id"), str)
    return isinstance(kind, str) and kind in OUTPUT_OF


def is_output(item: JSONObject) -> bool:
    """Whether this item is the output of a call."""
    kind = item.get("type")
    return isinstance(kind, str) and kind in OUTPUTS


def is_models(item: JSONObject) -> bool:
    """Whether this is a model's own item: reasoning, text or a call."""
    kind = item.get("type")
    if kind == "message":
        return item.get("role") == "assistant"
    return kind == "reasoning" or (isinstance(kind, str) and kind.endswith("_call"))


def call_id_of(item: JSONObject) -> str:
    """The id that call and output share; the hosted shell's may be in `id`."""
    call_id = item.get("call_id")
    if isinstance(call_id, str) and call_id:
        return call_id
    own = item.get("id") if item.get("type") == "local_shell_call" else None
    return own if isinstance(own, str) else ""


def printable_id(call_id: str) -> str:
    """The id as it came, unless no API would take it."""
    return call_id if _PRINTABLE.fullmatch(call_id) else word_id(call_id)


def any_id(call_id: str) -> str:
    """The id as it came; some gateways hide a signature in it."""
    return call_id or "call"


def word_id(call_id: str) -> str:
    """The id in the letters that Anthropic's API allows."""
    if _WORD.fullmatch(call_id):
        return call_id
    mark = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    word = _NOT_WORD.sub("_", call_id)[: _LONGEST_ID - 9]
    return f"{word}_{mark}" if call_id else "call"


def nine_id(call_id: str) -> str:
    """The id in nine letters and digits, as Mistral's API takes them."""
    if _NINE.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:9]


class _Open(NamedTuple):
    group: int
    position: int


class CallIds:
    """Unique ids of calls: servers that count from zero in each reply repeat theirs."""

    def __init__(self, legal: Legal = printable_id, before: CallIds | None = None) -> None:
        self._legal = legal
        self._before = before
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def copy(self) -> CallIds:
        """A copy that continues from here without changing this one."""
        return CallIds(self._legal, self)

    def _is_taken(self, name: str) -> bool:
        return name in self._taken or (self._before is not None and self._before._is_taken(name))

    def _count(self, legal: str) -> int:
        own = self._next.get(legal)
        if own is not None or self._before is None:
            return own or 2
        return self._before._count(legal)

    def name(self, call_id: str) -> str:
        """The id to send for one more call with this id."""
        legal = self._legal(call_id)
        name, number = legal, self._count(legal)
        while self._is_taken(name):
            short = legal if len(legal) > _LONGEST_ID else legal[: _LONGEST_ID - 8]
            name = self._legal(f"{short}__{number}")
            number += 1
        self._next[legal] = number
        self._taken.add(name)
        return name


def answers(items: Sequence[JSONObject]) -> dict[int, JSONObject]:
    """The output of each call, by the call's position. The first output counts.

    Of several calls with one id, an output belongs to the oldest open one of the latest group:
    siblings are answered in order, and a call of long ago is no longer waiting.
    """
    found: dict[int, JSONObject] = {}
    waiting: dict[str, list[_Open]] = {}
    group, in_group = 0, False
    for position, item in enumerate(items):
        if is_models(item):
            group += not in_group
            in_group = True
            if is_call(item):
                waiting.setdefault(call_id_of(item), []).append(_Open(group, position))
            continue
        in_group = False
        if is_output(item) and (calls := waiting.get(call_id_of(item))):
            latest = calls[-1].group
            at = next(n for n, call in enumerate(calls) if call.group == latest)
            found[calls.pop(at).position] = item
    return found


def paired(items: Sequence[JSONObject], names: CallIds | None = None) -> list[JSONObject]:
    """The items with the invariant: outputs moved, made up (`aborted`) or dropped; ids unique.

    Items are not changed; where one has to differ it is copied.
    """
    return [item for item, _ in traced(items, CallIds() if names is None else names)]


def traced(items: Sequence[JSONObject], names: CallIds) -> list[tuple[JSONObject, int]]:
    """The items of `paired`, each with its position in the original; -1 for outputs."""
    found = answers(items)
    made: list[tuple[JSONObject, int]] = []
    owed: list[tuple[JSONObject, int]] = []
    for position, item in enumerate(items):
        if not is_models(item):
            made += owed
            owed.clear()
            if not is_output(item):
                made.append((item, position))
            continue
        if is_call(item):
            call_id = names.name(call_id_of(item))
            owed.append((_output_for(item, found.get(position), call_id), -1))
            item = _with(item, "call_id", call_id)
        made.append((item, position))
    return made + owed


def _with(item: JSONObject, key: str, value: Any) -> JSONObject:
    return item if item.get(key) == value else {**item, key: value}


def _output_for(call: JSONObject, output: JSONObject | None, call_id: str) -> JSONObject:
    wanted = OUTPUT_OF[call["type"]]
    if output is None:
        return _made_up(wanted, call_id, ABORTED)
    if output["type"] == wanted:
        return _with(output, "call_id", call_id)
    if "output" in output and wanted in ("function_call_output", "custom_tool_call_output"):
        return {**output, "type": wanted, "call_id": call_id}
    return _made_up(wanted, call_id, _text_of(output))


def _made_up(kind: str, call_id: str, text: str) -> JSONObject:
    item: JSONObject = {"type": kind, "call_id": call_id}
    if kind == "view_image_call_output":
        return item | {"image_data": None, "metadata": {"error": text}}
    if kind == "web_search_call_output":
        return item | {"results": [], "error": text}
    return item | {"output": text}


def _text_of(output: JSONObject) -> str:
    value = output.get("output")
    if isinstance(value, str):
        return value
    return dumps({key: output[key] for key in output if key not in ("type", "call_id")})
