from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.gate.output.collector import Collector
from toolrest.gate.output.redact import Redactor
from toolrest.gate.output.spill import Spill
from toolrest.gate.output.truncate import Limit, byte_length, line_count, truncate

FULL = os.environ.get("TOOLREST_TEST_FULL") == "1"

any_text = st.text(st.characters(exclude_categories=()), max_size=40)
limits = st.builds(Limit, st.integers(0, 60), st.sampled_from(["bytes", "tokens", "chars"]))


@given(st.lists(any_text, max_size=12), limits)
def test_equals_truncate_of_the_whole(chunks: list[str], limit: Limit) -> None:
    whole = "".join(chunks)
    collector = Collector(limit)
    for chunk in chunks:
        assert collector.write(chunk) == chunk
    collected = collector.finish()
    assert collected.text == truncate(whole, limit)
    assert collected.truncated == (collected.text != whole)
    assert collected.total_bytes == byte_length(whole)
    assert collected.total_lines == line_count(whole)
    assert collector.finish() is collected


@given(st.binary(max_size=80), st.lists(st.integers(0, 80), max_size=8), limits)
def test_bytes_decode_alike_however_they_are_cut(
    data: bytes, cuts: list[int], limit: Limit
) -> None:
    edges = sorted({0, *(cut for cut in cuts if cut < len(data)), len(data)})
    collector = Collector(limit)
    seen = ""
    for start, end in pairwise(edges):
        seen += collector.write(data[start:end])
    collected = collector.finish()
    whole = data.decode("utf-8", "replace")
    assert collected.text == truncate(whole, limit)
    assert whole.startswith(seen)
    assert collected.total_bytes == len(whole.encode())


def test_text_after_unfinished_bytes() -> None:
    collector = Collector(Limit(100))
    collector.write("é".encode()[:1])
    collector.write("x")
    assert collector.finish().text == "\ufffdx"


def test_the_spill_holds_everything_redacted(tmp_path: Path) -> None:
    secret = "correct-horse-battery"
    spill = Spill(tmp_path, "s1")
    collector = Collector(
        Limit(64, "bytes"), redactor=Redactor({"PASSWORD": secret}), spill=spill, hint="exec"
    )
    text = "".join(f"{number}: {secret} é\n" for number in range(5000))
    data = text.encode()
    shown = "".join(collector.write(data[at : at + 7]) for at in range(0, len(data), 7))
    collected = collector.finish()
    clean = text.replace(secret, "[redacted:PASSWORD]")
    assert collected.text == truncate(clean, Limit(64, "bytes"))
    assert clean.startswith(shown)
    assert collected.spill_path is not None
    assert collected.spill_problem is None
    assert Path(collected.spill_path).read_text() == clean
    assert collected.spill_bytes == collected.total_bytes == len(clean.encode())
    spill.close()


def test_nothing_is_spilled_while_it_fits(tmp_path: Path) -> None:
    with Collector(Limit(100), spill=Spill(tmp_path / "home", "s1")) as collector:
        collector.write("x" * 100)
    assert collector.finish().spill_path is None
    assert collector.finish().spill_problem is None
    assert not (tmp_path / "home").exists()


def test_what_comes_after_the_end_is_dropped() -> None:
    collector = Collector(Limit(3))
    collector.write("abc")
    collected = collector.finish()
    assert collector.write("late") == ""
    assert collector.finish() is collected


def test_the_spill_is_capped_and_says_so(tmp_path: Path) -> None:
    spill = Spill(tmp_path, "s1", cap=1000)
    collector = Collector(Limit(10), spill=spill)
    for _ in range(300):
        collector.write("0123456789")
    collected = collector.finish()
    assert collected.total_bytes == 3000
    assert collected.spill_bytes == 1000
    assert collected.spill_path is not None
    assert os.path.getsize(collected.spill_path) == 1000
    assert collected.spill_problem == "the spill limit of 1000 bytes was reached"
    spill.close()


def test_a_spill_exactly_at_its_cap_is_complete(tmp_path: Path) -> None:
    spill = Spill(tmp_path, "s1", cap=20)
    with Collector(Limit(10), spill=spill) as collector:
        collector.write("x" * 20)
    assert collector.finish().spill_problem is None
    spill.close()


def _child(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_full_disk_stops_the_spill_and_nothing_else(tmp_path: Path) -> None:
    code = """
import resource, sys
from toolrest.gate.output.collector import Collector
from toolrest.gate.output.truncate import Limit
from toolrest.gate.output.spill import Spill
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
collector = Collector(Limit(100, "bytes"), spill=Spill(sys.argv[1], "s1"))
for number in range(40_000):
    collector.write(f"{number:09d}\\n")
found = collector.finish()
print(found.total_bytes, found.spill_bytes, found.spill_problem, found.text.count("000039999"))
"""
    total, kept, problem = _child(code, str(tmp_path)).split(" ", 2)
    assert (total, kept) == ("400000", "100000")
    assert problem.strip() == "File too large (os error 27) 1"


@pytest.mark.parametrize("secrets", [False, True])
def test_memory_stays_bounded_while_a_producer_runs(tmp_path: Path, secrets: bool) -> None:
    size = (1 << 30 if FULL else 104 << 20) >> (2 if secrets else 0)
    code = """
import resource, sys
from toolrest.gate.output.collector import Collector
from toolrest.gate.output.truncate import Limit
from toolrest.gate.output.redact import Redactor
from toolrest.gate.output.spill import Spill
size = int(sys.argv[2])
redactor = Redactor({"API_KEY": "k" * 20 + "secret" + "z" * 20} if sys.argv[3] == "True" else {})
line = ("progress é " * 11).encode() + b"\\n"
chunk = line * (65536 // len(line))
spill = Spill(sys.argv[1], "s1", cap=64 << 20)
collector = Collector(Limit(10_000, "tokens"), redactor=redactor, spill=spill)
collector.write(b"first line\\n")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
written = lines = 0
while written < size:
    collector.write(chunk)
    written += len(chunk)
    lines += chunk.count(b"\\n")
collector.write(b"last line")
found = collector.finish()
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert found.total_bytes == written + 11 + 9, found.total_bytes
assert found.total_lines == lines + 2, found.total_lines
assert found.text.startswith("first line\\n") and found.text.endswith("\\nlast line")
spill.close()
print(after - before)
"""
    grown_kib = int(_child(code, str(tmp_path), str(size), str(secrets)))
    assert grown_kib < 32 * 1024
