"""The one limiter that every output passes on its way to a model.

Order matters: secrets go first (a cut could leave half of one), then the middle, and the notes
come last, so that nothing of a documented layout is disturbed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from msgspec import Struct

from toolrest.errors import Failure
from toolrest.gate.output.collector import NOT_KEPT, Collector
from toolrest.gate.output.redact import Redactor
from toolrest.gate.output.spill import Spill
from toolrest.gate.output.truncate import (
    Limit,
    byte_length,
    cut,
    cut_items,
    fits,
    line_count,
    truncate,
)
from toolrest.items import Content, Image, Text, ToolOutput

DEFAULT_LIMIT = Limit(12_000, "chars")
NOTE_PREFIX = "[toolrest] "
_TAG = NOTE_PREFIX.strip()
_IMITATED = re.compile(rf"(?<![^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]){re.escape(_TAG)}")
_MAX_NOTES = 32
_MAX_NOTE_CHARS = 2000
_MARKER_ROOM = 64


class Limited(Struct):
    """An output within its limits. `total_bytes` counts the whole text before it was cut."""

    output: ToolOutput
    truncated: bool
    total_bytes: int
    spill: str | None


class _Whole(Struct):
    """Exact totals of a text that was cut, and the spill file with all of it."""

    total_bytes: int
    total_lines: int
    shown: str
    path: str | None
    path_bytes: int
    problem: str | None
    was_json: bool = False

    def beside(self, later: _Whole | None) -> _Whole:
        """The same totals and spill file, for a text that was cut again."""
        if later is not None:
            self.shown, self.was_json = f"at most {later.shown}", later.was_json
        return self

    def notice(self, setting: str) -> str:
        where = f"the rest was not kept: {self.problem or NOT_KEPT}"
        if self.path and self.problem:
            where = (
                f"its first {self.path_bytes} bytes are in {self.path} (read it with read_file); "
                + where
            )
        elif self.path:
            where = f"the whole is in {self.path} (read it with read_file)"
        json = "; what is shown cannot be parsed as JSON" if self.was_json else ""
        return (
            f"output cut: {self.total_bytes} bytes and {self.total_lines} lines in all, "
            f"{self.shown} shown{f' ({setting})' if setting else ''}; {where}{json}"
        )


class Limiter:
    """Redacts, cuts, spills and notes. One per session; `limit` is the model family's policy.

    Without a family's limit the default is 12,000 characters. `chars` (`tool_result_max_chars`)
    and `by_tool` (`[tools.limits]`) are characters and count instead of both. What a tool's author
    sets (`ceiling`) only lowers a limit, unless `by_tool` names the tool.
    """

    def __init__(
        self,
        limit: Limit | None = None,
        *,
        chars: int | None = None,
        by_tool: Mapping[str, int] | None = None,
        spill: Spill | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self._of_family = limit or DEFAULT_LIMIT
        self.limit = DEFAULT_LIMIT if limit is None else limit.for_history()
        self._chars = chars
        self._by_tool = dict(by_tool or {})
        self._spill = spill
        self._known = redactor
        # Text this short is within the limit whatever its characters need.
        safe = self.limit.budget // (1 if self.limit.unit == "chars" else 4)
        self._safe = safe if chars is None else chars

    @property
    def _redactor(self) -> Redactor | None:
        """The redactor, once it has a secret to hide."""
        known = self._known
        return known if known is not None and known.active else None

    def apply(
        self, output: ToolOutput, *, call_id: str, tool: str, ceiling: int | None = None
    ) -> Limited:
        """Redact and cut an output; one that needs neither comes back as it is.

        The notes of the output end up in its content, so a second pass adds none.
        """
        content = output.content
        if (
            ceiling is None
            and content.__class__ is str
            and len(content) <= self._safe
            and not output.notes
            and "collected" not in output.metadata
            and tool not in self._by_tool
            and output.structured is None
            and _TAG not in content
            and self._is_clean(output, content)
        ):
            return Limited(output, False, byte_length(content), None)
        return self._apply(output, call_id, tool, self._limits(tool, ceiling))

    def _is_clean(self, output: ToolOutput, text: str) -> bool:
        """Whether a plain output holds no secret, so that it can go as it is."""
        redactor = self._known
        if redactor is None or not redactor.active:
            return True
        return (
            output.failure is None
            and output.structured is None
            and not output.metadata
            and redactor.redact(text) == text
        )

    def collector(self, call_id: str, tool: str, ceiling: int | None = None) -> Collector:
        """A collector for a streamed output of this call, up to the stricter limit."""
        limits = self._limits(tool, ceiling)
        return Collector(
            min(limits, key=lambda limit: limit.budget),
            redactor=self._redactor,
            spill=self._spill,
            hint=f"{tool}-{call_id}",
        )

    def shown(self, tool: str) -> Limit:
        """The limit of an output that the model is shown."""
        return self.limit_of(tool) or self._of_family

    def holds(self, text: str, tool: str) -> bool:
        """Whether a tool's output may be as long as this, so that it is not cut."""
        return all(fits(text, limit) for limit in self._limits(tool, None))

    def limit_of(self, tool: str) -> Limit | None:
        """The limit that the settings have for a tool's outputs; None where they have none."""
        chars = self._by_tool.get(tool, self._chars)
        return None if chars is None else Limit(chars)

    def _limits(self, tool: str, ceiling: int | None) -> list[Limit]:
        limit = self.limit_of(tool) or self.limit
        own = ceiling is not None and tool not in self._by_tool
        return [limit, Limit(max(0, ceiling or 0))] if own else [limit]

    def _setting(self, tool: str, limits: list[Limit]) -> str:
        """The setting that cut a tool's output, with its value; empty for none of the user's."""
        limit = self.limit_of(tool)
        if limit is None or limit != min(limits, key=lambda each: each.budget):
            return ""
        key = f"tools.limits.{tool}" if tool in self._by_tool else "tool_result_max_chars"
        return f"{key} = {limit.amount}"

    def _apply(self, output: ToolOutput, call_id: str, tool: str, limits: list[Limit]) -> Limited:
        output = _without_imitations(output)
        if self._redactor is not None:
            output = _redacted(output, self._redactor)
        if output.structured is not None:
            output = _without_large_structure(output, limits)
        # The tool already cut its output: reuse its totals and spill file.
        summary, setting = _summary(output), self._setting(tool, limits)
        if summary is not None and cut(output.text, [_with_room(one) for one in limits]) is None:
            limits = []
        hint = f"{tool}-{call_id}" if summary is None else None
        content: str | list[Content]
        if isinstance(output.content, str):
            content, total, whole = self._text(output.content, hint, limits)
        else:
            content, total, whole = self._items(output.content, hint, limits)
        whole = summary.beside(whole) if summary is not None else whole
        if whole is None and not output.notes:
            return Limited(output, False, total, None)
        notes = [_note(note) for note in output.notes[:_MAX_NOTES]]
        if whole is not None:
            notes.append(_note(whole.notice(setting)))
            total = whole.total_bytes
        output = replace(output, content=_with_notes(content, notes), notes=[])
        return Limited(output, whole is not None, total, whole.path if whole else None)

    def _text(
        self, text: str, hint: str | None, limits: list[Limit]
    ) -> tuple[str, int, _Whole | None]:
        total = byte_length(text)
        short = cut(text, limits)
        if short is None:
            return text, total, None
        return short.text, total, self._kept(text, total, short.shown_bytes, hint)

    def _items(
        self, items: list[Content], hint: str | None, limits: list[Limit]
    ) -> tuple[list[Content], int, _Whole | None]:
        texts = [item.text for item in items if isinstance(item, Text)]
        text = "\n".join(texts)
        total = byte_length(text)
        cuts = [cut_items(items, limit) for limit in limits]
        if all(shown == sum(map(byte_length, texts)) for _, shown in cuts):
            return items, total, None
        short, shown = min(cuts, key=lambda kept_and_shown: kept_and_shown[1])
        return short, total, self._kept(text, total, shown, hint)

    def _kept(self, text: str, total: int, shown: int, hint: str | None) -> _Whole:
        file = self._spill.save(text, hint) if self._spill is not None and hint else None
        return _Whole(
            total_bytes=total,
            total_lines=line_count(text),
            shown=f"{shown} bytes",
            path=file.path if file else None,
            path_bytes=file.size if file else 0,
            problem=file.problem if file else NOT_KEPT,
            was_json=_looks_like_json(text),
        )


def _summary(output: ToolOutput) -> _Whole | None:
    """The totals of a tool that cut its output before the limiter did."""
    summary = output.metadata.get("collected") if output.metadata else None
    if not isinstance(summary, dict) or not summary.get("truncated"):
        return None
    try:
        return _Whole(
            total_bytes=int(summary["total_bytes"]),
            total_lines=int(summary["total_lines"]),
            shown=f"{int(summary['shown_bytes'])} bytes",
            path=summary["spill_path"],
            path_bytes=int(summary["spill_bytes"]),
            problem=summary["spill_problem"],
        )
    except (KeyError, TypeError, ValueError):
        return None


def _with_room(limit: Limit) -> Limit:
    """The limit with room for the tool's own marker, so that it is not cut a second time."""
    return Limit(
        limit.amount + (_MARKER_ROOM // 4 if limit.unit == "tokens" else _MARKER_ROOM), limit.unit
    )


def _without_large_structure(output: ToolOutput, limits: list[Limit]) -> ToolOutput:
    """Drop structured content over the limit; models get it beside the text."""
    try:
        text = json.dumps(output.structured, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return replace(output, structured=None)
    if all(fits(text, limit) for limit in limits):
        return output
    note = f"structured content of {byte_length(text)} bytes was left out"
    return replace(output, structured=None, notes=[*output.notes, note])


def _redacted(output: ToolOutput, redactor: Redactor) -> ToolOutput:
    content, failure = output.content, output.failure
    if isinstance(content, str):
        content = redactor.redact(content)
        bare = failure is None and output.structured is None
        if bare and content == output.content and not (output.metadata or output.notes):
            return output
    else:
        content = [_redacted_item(item, redactor) for item in content]
    if failure is not None:
        message = redactor.redact(failure.message)
        failure = Failure(failure.kind, message, failure.fields, failure.said)
    return replace(
        output,
        content=content,
        failure=failure,
        structured=redactor.redact_json(output.structured),
        metadata=redactor.redact_json(output.metadata),
        notes=[redactor.redact(note) for note in output.notes],
    )


def _redacted_item(item: Content, redactor: Redactor) -> Content:
    if isinstance(item, Text):
        return Text(redactor.redact(item.text))
    if item.url.startswith("data:"):
        return item
    return Image(redactor.redact(item.url), item.detail)


def _without_imitations(output: ToolOutput) -> ToolOutput:
    """The output without lines of data that begin like a note of ours.

    They get a blank in front: what quotes them for an edit is still found, since white space
    around a line is forgiven. An error's own message is ours.
    """
    content = output.content
    if output.failure is not None and content == output.failure.message:
        return output
    if isinstance(content, str):
        return replace(output, content=_indented(content)) if _TAG in content else output
    texts = [Text(_indented(item.text)) if isinstance(item, Text) else item for item in content]
    return output if texts == content else replace(output, content=texts)


def _indented(text: str) -> str:
    return _IMITATED.sub(f" {_TAG}", text)


def _note(text: str) -> str:
    line = " ".join(text.removeprefix(NOTE_PREFIX).splitlines())
    return NOTE_PREFIX + truncate(line, Limit(_MAX_NOTE_CHARS))


def _with_notes(content: str | list[Content], notes: list[str]) -> str | list[Content]:
    lines = "\n".join(notes)
    if not isinstance(content, str):
        return [*content, Text(lines)]
    if not content or content.endswith("\n"):
        return content + lines
    return f"{content}\n{lines}"


def _looks_like_json(text: str) -> bool:
    start, end = text[:64].lstrip(), text[-64:].rstrip()
    closing = {"{": "}", "[": "]"}.get(start[:1])
    return (
        closing is not None
        and end.endswith(closing)
        and start[1:].lstrip()[:1] in (*'"{[]}-0123456789tfn', "")
    )
