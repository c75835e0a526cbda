"""µs per shell verdict over the command table; ms for ten thousand segments, for 250 kB of tangle.

A verdict is everything between a command line and its answer: reading, judging, and deciding
in one mode. `python bench/policy.py [--json]`.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

from results import record

TABLE = Path(__file__).parents[1] / "tests" / "data" / "commands.jsonl"
ROUNDS = 20
JOINTS = ("; ", " && ", " | ", "\n")
TANGLES = ("[[ a ]] ", "((a)) ", "${", "$(", "`", "{", "cat <<E\nx\nE\n", "rm $a; ")


def verdicts() -> dict[str, float]:
    from toolrest.policy.rules.rules import Rules
    from toolrest.policy.verdict.command import judge
    from toolrest.policy.verdict.outcome import Setting, outcome

    commands = [json.loads(line)["command"] for line in TABLE.read_text().splitlines()]
    rules, setting = Rules(), Setting("on-request", "workspace-write")

    def decide(command: str) -> float:
        start = time.perf_counter()
        verdict = judge(command, cwd="/home/u/proj", home="/home/u")
        outcome(verdict, rules, setting)
        return (time.perf_counter() - start) * 1e6

    first = decide("ls $x")
    # Of each command the quickest of many: what it costs, not what the machine was up to.
    times = sorted(min(decide(command) for _ in range(ROUNDS)) for command in commands)
    return {
        "commands": len(times),
        "first_us": first,
        "median_us": statistics.median(times),
        "p99_us": times[int(len(times) * 0.99)],
        "worst_us": times[-1],
    }


def ten_thousand() -> dict[str, float]:
    from toolrest.policy.verdict.command import judge

    found = {}
    for joint in JOINTS:
        script = joint.join(f"echo {number} a" for number in range(10_000))
        spent = []
        for _ in range(5):
            start = time.perf_counter()
            judge(script, cwd="/w", home="/h")
            spent.append((time.perf_counter() - start) * 1e3)
        found[joint.strip() or "newline"] = min(spent)
    return found


def tangled() -> dict[str, float]:
    """Milliseconds of processor time until 250 kB that no shell would take are given up."""
    from toolrest.policy.verdict.command import judge

    found = {}
    for piece in TANGLES:
        text = piece * (250_000 // len(piece))
        start = time.process_time()
        judge(text, cwd="/w", home="/h")
        found[piece.strip()] = (time.process_time() - start) * 1e3
    return found


def main() -> None:
    row, long, tangles = verdicts(), ten_thousand(), tangled()
    if "--json" in sys.argv:
        print(
            json.dumps(
                {"verdicts": row, "ten_thousand_segments_ms": long, "tangled_250_kb_ms": tangles}
            )
        )
        return
    record(
        "policy",
        "Judging a command line",
        "µs",
        {f"toolrest, {name}": row[f"{name}_us"] for name in ("median", "p99", "worst")},
        f"{row['commands']} command lines, the quickest of {ROUNDS} rounds each: reading, judging, "
        "deciding. `bench/policy.py`.",
    )
    print(f"{row['commands']} commands of the table, quickest of {ROUNDS} rounds each")
    print(f"  median {row['median_us']:8.1f} µs")
    print(f"  p99    {row['p99_us']:8.1f} µs")
    print(f"  worst  {row['worst_us']:8.1f} µs")
    print(f"  first  {row['first_us']:8.1f} µs (loads the grammar)")
    for joint, milliseconds in long.items():
        print(f"10,000 segments joined by {joint:7} {milliseconds:8.1f} ms")
    for piece, milliseconds in tangles.items():
        print(f"250 kB of {piece!r:23} {milliseconds:8.1f} ms")


if __name__ == "__main__":
    main()
