"""Loop detection: a model makes the same call with the same result again and again (R-73).

A call that only reads is always run, since files change without us: its repeated result gets a
note. One that changes something is not run a fifth time.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import Struct

from toolrest.items import Text, ToolOutput

NUDGE_AT = 3
STOP_AT = 5
_REMEMBERED = 512
_ADVICE = "Use the earlier result, change the arguments, or tell the user what blocks you."


class _Seen(Struct):
    result: int
    times: int


class LoopWatch:
    """Counts identical results of identical calls in one turn since the last new mutating call.

    A mutating call that was not seen before may change what the others return, so it starts
    the count anew: edit, test, edit, test is work, not a loop. Results that differ do too.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def refusal(self, fingerprint: str, *, mutating: bool) -> str | None:
        """The reason why this call is not run once more, or None."""
        seen = self._seen.get(fingerprint)
        if not mutating or seen is None or seen.times < STOP_AT - 1:
            return None
        return f"not run: this exact call has given the same result {seen.times} times. {_ADVICE}"

    def watch(self, output: ToolOutput, fingerprint: str, *, mutating: bool) -> ToolOutput:
        """Take note of a call's output; it has one more line from the third of its kind on."""
        if output.failure is not None and output.failure.kind in ("aborted", "approval_denied"):
            return output
        nudge = self.record(fingerprint, _shown(output), mutating=mutating)
        if nudge is None:
            return output
        # A copy: a tool may return the same object every time.
        return replace(output, notes=[*output.notes, nudge])

    def record(self, fingerprint: str, result: str, *, mutating: bool) -> str | None:
        """Take note of a result; returns a nudge from the third of its kind on."""
        digest = hash(result)
        seen = self._seen.get(fingerprint)
        if seen is None:
            if mutating:
                self._seen.clear()
            elif len(self._seen) >= _REMEMBERED:
                del self._seen[next(iter(self._seen))]
            self._seen[fingerprint] = _Seen(digest, 1)
            return None
        if seen.result != digest:
            seen.result, seen.times = digest, 1
            return None
        seen.times += 1
        if seen.times < NUDGE_AT:
            return None
        note = f"the same call has now given the same result {seen.times} times"
        return note if seen.times < STOP_AT else f"{note}. {_ADVICE}"


def _shown(output: ToolOutput) -> str:
    """The part of an output that a model sees: its text and its images."""
    if isinstance(output.content, str):
        return output.content
    return "\n".join(part.text if isinstance(part, Text) else part.url for part in output.content)
