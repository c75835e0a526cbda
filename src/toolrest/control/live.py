"""What a session writes at this moment, which its journal does not have yet."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from toolrest.events import Event
from toolrest.items import JSONObject
from toolrest.process.output.terminal_text import PlainText

_MOST = 64 * 1024
"""Characters of a message or an output that a late viewer is given."""
_TEXTS = {"agent_message_content_delta": "text", "reasoning_content_delta": "reasoning"}
_WHOLE = {
    "agent_message": "text",
    "agent_reasoning": "reasoning",
    "agent_reasoning_raw_content": "reasoning",
}


class _Text(Struct):
    parts: list[str] = field(default_factory=list)
    size: int = 0
    plain: PlainText | None = None

    def add(self, text: str) -> None:
        self.parts.append(text)
        self.size += len(text)
        if self.size > 2 * _MOST:
            self.parts = [self.text]
            self.size = len(self.parts[0])

    @property
    def text(self) -> str:
        return "".join(self.parts)[-_MOST:]


class LiveText:
    """The message, the reasoning and the outputs of calls that are being written."""

    def __init__(self) -> None:
        self._texts: dict[str, _Text] = {}
        self._outputs: dict[str, _Text] = {}

    def snapshot(self) -> list[JSONObject]:
        """Everything so far, for a viewer that comes in the middle."""
        texts = [{"event": kind, "text": one.text} for kind, one in self._texts.items()]
        outputs = [
            {"event": "output", "call": call_id, "text": one.text}
            for call_id, one in self._outputs.items()
        ]
        return [*texts, *outputs]

    def feed(self, event: Event) -> list[JSONObject]:
        """Take an event; the messages that viewers are sent for it."""
        data: Any = event
        kind = event.type
        if name := _TEXTS.get(kind):
            self._texts.setdefault(name, _Text()).add(data.delta)
            return [{"event": name, "text": data.delta}]
        if kind in ("tool_call_delta", "exec_command_output_delta"):
            return self._output(data.call_id, data.text)
        if name := _WHOLE.get(kind):
            self._texts.pop(name, None)
            return [{"event": f"{name}_end"}]
        if kind == "tool_call_end":
            known = self._outputs.pop(data.call_id, None)
            return [] if known is None else [{"event": "output_end", "call": data.call_id}]
        if kind in ("stream_error", "task_complete"):
            self._texts.clear()
            if kind == "task_complete":
                self._outputs.clear()
            return [{"event": "reset"}]
        return []

    def _output(self, call_id: str, text: str) -> list[JSONObject]:
        output = self._outputs.setdefault(call_id, _Text(plain=PlainText()))
        plain = output.plain.feed(text) if output.plain is not None else text
        if not plain:
            return []
        output.add(plain)
        return [{"event": "output", "call": call_id, "text": plain}]


def merged(messages: list[JSONObject]) -> list[JSONObject]:
    """The messages with neighbouring pieces of one text put together."""
    found: list[JSONObject] = []
    for message in messages:
        last = found[-1] if found else {}
        same = last.get("event") == message["event"] and last.get("call") == message.get("call")
        if same and "text" in message:
            found[-1] = {**last, "text": last["text"] + message["text"]}
        else:
            found.append(message)
    return found
