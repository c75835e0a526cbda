"""Layout of command results for a model: pure functions of finished values.

The gate cuts text to a budget; these functions take the text as it shall appear.
"""

from __future__ import annotations

import json
import math
import re
from decimal import ROUND_HALF_UP, Decimal


def line_count(text: str) -> int:
    """Lines as the contract counts them: a final newline opens none, and only LF divides."""
    if not text:
        return 0
    return text.count("\n") + (not text.endswith("\n"))


def one_decimal(seconds: float) -> float:
    """Seconds rounded to a tenth, halves away from zero."""
    return float(Decimal(str(seconds)).quantize(Decimal("0.1"), ROUND_HALF_UP))


def tokens(byte_count: int) -> int:
    """The contract's token estimate: four bytes each, rounded up."""
    return math.ceil(byte_count / 4)


def body(output: str, timed_out_after: float | None = None) -> str:
    """A shell command's output; a timeout comes first, with the measured time."""
    if timed_out_after is None:
        return output
    return f"command timed out after {int(timed_out_after * 1000)} milliseconds\n{output}"


def structured(output: str, exit_code: int, duration: float) -> str:
    """`shell` and its aliases: compact JSON, with the output already cut."""
    metadata = {"exit_code": exit_code, "duration_seconds": one_decimal(duration)}
    return json.dumps(
        {"output": output, "metadata": metadata}, ensure_ascii=False, separators=(",", ":")
    )


def freeform(whole: str, shown: str, exit_code: int, duration: float) -> str:
    """`shell_command`: header lines and the cut body; line totals when the cut changed them."""
    seconds = f"{one_decimal(duration):.1f}".removesuffix(".0")
    lines = [f"Exit code: {exit_code}", f"Wall time: {seconds} seconds"]
    if line_count(whole) != line_count(shown):
        lines.append(f"Total output lines: {line_count(whole)}")
    return "\n".join([*lines, "Output:", shown])


_HEAD = re.compile(
    r"\A(?:(?:Exit code|Wall time|Total output lines|Chunk ID|Original token count): .*\n"
    r"|Process (?:exited|running) with .*\n)+Output:\n?"
)


def printed(text: str) -> str:
    """What the program printed, of an output with header lines."""
    return _HEAD.sub("", text)


def unified(
    shown: str,
    *,
    chunk_id: str,
    wall_time: float,
    original_bytes: int,
    exit_code: int | None = None,
    session_id: int | None = None,
) -> str:
    """`exec_command` and `write_stdin`: output of this call, and exit code or session ID."""
    lines = [f"Chunk ID: {chunk_id}", f"Wall time: {wall_time:.4f} seconds"]
    if exit_code is not None:
        lines.append(f"Process exited with code {exit_code}")
    if session_id is not None:
        lines.append(f"Process running with session ID {session_id}")
    lines.append(f"Original token count: {tokens(original_bytes)}")
    return "\n".join([*lines, "Output:", shown])
