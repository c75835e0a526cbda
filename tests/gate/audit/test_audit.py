from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.errors import AuditError, ConfigError
from toolrest.events import (
    Event,
    FileChange,
    ToolCallBegin,
    ToolCallDecision,
    ToolCallDelta,
    ToolCallEnd,
)
from toolrest.gate.audit.log import AuditLog
from toolrest.gate.audit.read import show, verify


def _decision(number: int = 1, **changes: Any) -> ToolCallDecision:
    values: dict[str, Any] = {
        "call_id": f"c{number}",
        "tool": "read_file",
        "arguments": '{"file_path":"README.md"}',
        "verdict": "allow",
        "rule": "reads need no approval",
        "risk": "read",
        "seq": number,
        "time": 1_700_000_000.5,
        "turn_id": "t1",
    }
    return ToolCallDecision(**(values | changes))


def _end(number: int = 1, **changes: Any) -> ToolCallEnd:
    values: dict[str, Any] = {
        "call_id": f"c{number}",
        "tool": "read_file",
        "success": True,
        "failure": None,
        "duration": 0.0123,
        "bytes": 42,
        "output": "the text itself is not for the audit",
        "seq": number,
        "time": 1_700_000_001.0,
        "turn_id": "t1",
    }
    return ToolCallEnd(**(values | changes))


def _log_of(folder: Path | str, calls: int = 3, session: str = "s1") -> Path:
    with AuditLog(folder, session) as log:
        for number in range(1, calls + 1):
            log.on_event(_decision(number))
            log.on_event(_end(number))
    return Path(str(log.path))


def _records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_one_line_per_decision_and_per_result(tmp_path: Path) -> None:
    with AuditLog(tmp_path / "audit", "s1", facts={"workspace": "/w"}) as log:
        assert not (tmp_path / "audit").exists()
        log.on_event(ToolCallBegin(call_id="c1", tool="edit", arguments="{}"))
        log.on_event(
            _decision(
                tool="edit",
                mutating=True,
                risk="write",
                source="user",
                reason="outside the workspace",
                keys=("write:/w/a",),
                sandbox="bubblewrap",
            )
        )
        log.on_event(ToolCallDelta(call_id="c1", text="…"))
        log.on_event(
            _end(
                tool="edit",
                exit_code=3,
                failure="execution_failed",
                success=False,
                fields=("path",),
                files=[FileChange("/w/a", None, "ab" * 32)],
            )
        )
    start, decision, result, end = _records(Path(str(log.path)))
    assert (start["type"], start["session"], start["workspace"]) == ("session_start", "s1", "/w")
    assert end["type"] == "session_end"
    assert {key: decision[key] for key in decision.keys() - {"prev", "hash"}} == {
        "n": 2,
        "type": "decision",
        "time": 1_700_000_000.5,
        "seq": 1,
        "turn": "t1",
        "call_id": "c1",
        "tool": "edit",
        "verdict": "allow",
        "rule": "reads need no approval",
        "risk": "write",
        "source": "user",
        "reason": "outside the workspace",
        "keys": ["write:/w/a"],
        "sandbox": "bubblewrap",
        "mutating": True,
        "arguments": '{"file_path":"README.md"}',
    }
    assert {key: result[key] for key in result.keys() - {"prev", "hash"}} == {
        "n": 3,
        "type": "result",
        "time": 1_700_000_001.0,
        "seq": 1,
        "turn": "t1",
        "call_id": "c1",
        "tool": "edit",
        "success": False,
        "failure": "execution_failed",
        "fields": ["path"],
        "duration": 0.0123,
        "exit_code": 3,
        "signal": None,
        "sandbox": "none",
        "bytes": 42,
        "truncated": False,
        "spill": None,
        "files": [{"path": "/w/a", "before": None, "after": "ab" * 32}],
    }
    assert verify(str(log.path)).ok


def test_a_fingerprint_is_written_when_the_event_has_one(tmp_path: Path) -> None:
    event = _decision()
    event.fingerprint = "fd236d8d1459d687"
    with AuditLog(tmp_path, "s1") as log:
        log.on_event(event)
    assert _records(Path(str(log.path)))[1]["fingerprint"] == "fd236d8d1459d687"


def test_files_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with AuditLog(tmp_path / "home" / "audit", "s1", home=tmp_path / "home") as log:
            path = Path(log.open())
    finally:
        os.umask(before)
    assert path == tmp_path / "home" / "audit" / "s1.jsonl"
    for file in (path, Path(f"{path}.head")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_folder_chosen_by_a_person_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    folder.chmod(0o755)
    _log_of(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_the_home_sign_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _log_of("~/logs").parent == tmp_path / "logs"


def test_a_place_that_a_tool_can_write_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (tmp_path / "link").symlink_to(root)
    for folder in (root, root / "deep" / "er", tmp_path / "link" / "x", root / ".." / "work"):
        with pytest.raises(ConfigError, match=r"tool_security\.audit_log_path: .* inside the"):
            AuditLog(folder, "s1", writable_roots=[tmp_path / "elsewhere", root])
    AuditLog(tmp_path / "workshop", "s1", writable_roots=[root]).close()
    # Our own home is kept from every tool by the path policy, wherever it is.
    home = root / ".toolrest"
    AuditLog(home / "audit", "s1", home=home, writable_roots=[root]).close()


def test_a_loop_that_ends_before_its_time_stops_no_later_sync(
    tmp_path: Path, synced: threading.Event
) -> None:
    async def soon(log: AuditLog, wait: bool) -> None:
        log.on_event(_decision(mutating=True))
        log.sync_soon()
        if wait:
            assert await asyncio.to_thread(synced.wait, 10)

    with AuditLog(tmp_path, "s1") as log:
        asyncio.run(soon(log, wait=False))
        assert not synced.is_set()
        asyncio.run(soon(log, wait=True))


def test_sync_puts_the_file_and_once_its_name_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with AuditLog(tmp_path, "s1") as log:
        log.sync()
        log.open()
        synced: list[int] = []
        monkeypatch.setattr(os, "fsync", synced.append)
        log.on_event(_decision())
        log.sync()
        assert len(synced) == 2
        log.on_event(_end())
        assert len(synced) == 2
        log.sync()
        assert len(synced) == 3


def test_long_arguments_are_cut_and_hashed(tmp_path: Path) -> None:
    with AuditLog(tmp_path, "s1") as log:
        log.on_event(_decision(arguments="x" * 1_000_000, keys=("run:" + "y" * 99_999,) * 999))
    record = _records(Path(str(log.path)))[1]
    assert len(record["arguments"]) < 9000
    assert len(record["arguments_sha256"]) == 64
    assert len(record["keys"]) == 256
    assert record["keys_in_all"] == 999
    assert verify(str(log.path)).ok


def test_text_that_cannot_be_encoded_is_written_all_the_same(tmp_path: Path) -> None:
    with AuditLog(tmp_path, "s1") as log:
        log.on_event(_decision(arguments="\ud800\x00\x1b]0;x\u202e\n", tool="t\ud800"))
    assert verify(str(log.path)).ok
    assert _records(Path(str(log.path)))[1]["arguments"] == "\ud800\x00\x1b]0;x\u202e\n"


@pytest.mark.parametrize("session", ["../x", "", ".", "..", "a/b", "x" * 300, "\ud800"])
def test_a_session_id_never_leaves_the_folder(tmp_path: Path, session: str) -> None:
    path = _log_of(tmp_path / "audit", 1, session)
    assert path.parent == tmp_path / "audit"
    assert not path.name.startswith(".")
    assert verify(path).ok


def test_a_second_log_of_a_session_gets_a_file_of_its_own(tmp_path: Path) -> None:
    with AuditLog(tmp_path, "s1") as one, AuditLog(tmp_path, "s1") as two:
        for log in (one, two, one, two):
            log.on_event(_decision())
    assert one.path != two.path
    for path in (one.path, two.path):
        result = verify(str(path))
        assert (result.ok, result.lines, result.ended) == (True, 4, True)


def test_a_closed_log_takes_no_more(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, "s1")
    log.on_event(_decision())
    log.close()
    log.close()
    with pytest.raises(AuditError, match="closed"):
        log.on_event(_end())


def test_an_unused_log_leaves_nothing(tmp_path: Path) -> None:
    AuditLog(tmp_path / "audit", "s1").close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_audit_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = AuditLog(tmp_path / "file" / "audit", "s1")
    with pytest.raises(
        AuditError, match=r"cannot write the audit log .* \(os error 20\); make room, or name"
    ):
        log.on_event(_decision())
    with pytest.raises(AuditError, match="cannot write"):
        log.on_event(_decision())
    log.close()


def test_a_planted_symlink_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "s1.jsonl").symlink_to(tmp_path / "victim")
    path = _log_of(tmp_path)
    assert path.name == "s1.2.jsonl"
    assert not (tmp_path / "victim").exists()


def test_an_unwritable_folder_is_an_audit_error() -> None:
    code = """
import os, sys
from toolrest.errors import AuditError
from toolrest.gate.audit.log import AuditLog
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(54321); os.setuid(54321)
try:
    AuditLog(sys.argv[1], "s1").open()
except AuditError as error:
    print(error)
"""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        assert "Permission denied (os error 13)" in _child(code, folder)


def test_a_full_disk_stops_the_log_and_room_lets_it_go_on(tmp_path: Path) -> None:
    code = """
import os, resource, shutil, sys
from toolrest.errors import AuditError
from toolrest.events import ToolCallDecision
from toolrest.gate.audit.log import AuditLog
log = AuditLog(sys.argv[1], "s1")
log.open()
event = ToolCallDecision(
    call_id="c", tool="t", arguments="{}", verdict="allow", rule="r", risk="write", mutating=True
)
# Room for a part of the next line and no more, however long the lines turn out to be.
room = os.path.getsize(log.path) + 40
resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
failed, words = 0, ""
for _ in range(30):
    try:
        log.on_event(event)
    except AuditError as error:
        failed += 1
        words = str(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
for suffix in ("", ".head"):
    shutil.copy(log.path + suffix, log.path.replace("s1.jsonl", "torn.jsonl") + suffix)
log.on_event(event)
log.close()
print(failed, words)
"""
    printed = _child(code, str(tmp_path))
    assert printed.split()[0] == "30"
    assert "File too large (os error 27)" in printed
    torn = verify(tmp_path / "torn.jsonl")
    assert (torn.ok, torn.finding) == (False, "torn")
    assert "never finished" in torn.message
    assert verify(tmp_path / "s1.jsonl").ok


def test_a_session_killed_between_lines_verifies_but_has_not_ended(tmp_path: Path) -> None:
    code = """
import os, sys
from toolrest.gate.audit.log import AuditLog
AuditLog(sys.argv[1], "s1").open()
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=60)
    result = verify(tmp_path / "s1.jsonl")
    assert (result.ok, result.lines, result.ended) == (True, 1, False)


def _child(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# verify


def _changed(tmp_path: Path, lines: list[bytes]) -> tuple[bool, str, int | None]:
    path = tmp_path / "s1.jsonl"
    path.chmod(0o600)
    path.write_bytes(b"".join(lines))
    result = verify(path)
    return result.ok, result.finding, result.line


def test_verify_names_the_line_and_what_happened_to_it(tmp_path: Path) -> None:
    lines = _log_of(tmp_path).read_bytes().splitlines(keepends=True)
    assert len(lines) == 8
    edited = lines[3].replace(b"README", b"SECRET")
    assert edited != lines[3]
    for changed, finding, line in (
        (lines, "intact", None),
        ([*lines[:3], edited, *lines[4:]], "edited", 4),
        ([*lines[:3], b"\n", *lines[3:]], "edited", 4),
        ([*lines[:3], b"not json\n", *lines[4:]], "edited", 4),
        ([*lines[:3], *lines[4:]], "removed", 4),
        ([*lines[:3], *lines[6:]], "removed", 4),
        (lines[1:], "removed", 1),
        ([*lines[:3], lines[4], lines[3], *lines[5:]], "reordered", 4),
        ([*lines[:4], *lines[3:]], "duplicated", 5),
        (lines[:-1], "truncated", 8),
        ([], "truncated", 1),
        ([*lines[:-1], lines[-1][:-9]], "truncated", 8),
        ([*lines, lines[-1][:20]], "torn", 9),
    ):
        assert _changed(tmp_path, changed) == (finding == "intact", finding, line)


def _resealed(line: bytes, **changes: object) -> bytes:
    from toolrest.gate.audit.chain import seal

    record = json.loads(line) | changes
    del record["hash"]
    return seal(record.pop("n"), record.pop("prev"), record)[0]


def test_a_line_replaced_with_a_right_hash_is_found_too(tmp_path: Path) -> None:
    lines = _log_of(tmp_path).read_bytes().splitlines(keepends=True)
    forged = _resealed(lines[3], verdict="deny")
    assert _changed(tmp_path, [*lines[:3], forged, *lines[4:]]) == (False, "rewritten", 4)
    last = _resealed(lines[-1], time=0)
    assert _changed(tmp_path, [*lines[:-1], last]) == (False, "rewritten_end", 8)
    # The whole rest rebuilt: the head file still knows the end.
    rebuilt = lines[:3]
    for line in (forged, *lines[4:]):
        previous = json.loads(rebuilt[-1])["hash"]
        rebuilt = [*rebuilt, _resealed(line, prev=previous)]
    assert _changed(tmp_path, rebuilt) == (False, "rewritten_end", 8)


def test_lines_that_the_head_does_not_know(tmp_path: Path) -> None:
    path = _log_of(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    last = json.loads(lines[-1])
    more = _resealed(lines[-1], n=9, prev=last["hash"])
    assert _changed(tmp_path, [*lines, more]) == (False, "uncovered", 9)


@pytest.mark.parametrize("head", [None, b"", b"{}", b"[1]", b'{"count":"8","hash":"x"}', b"\xff"])
def test_a_missing_or_damaged_head_is_said(tmp_path: Path, head: bytes | None) -> None:
    path = _log_of(tmp_path)
    head_path = Path(f"{path}.head")
    head_path.unlink()
    if head is not None:
        head_path.write_bytes(head)
    result = verify(path)
    assert (result.ok, result.finding, result.lines) == (False, "no_head", 8)


def test_a_head_without_its_log_is_a_finding(tmp_path: Path) -> None:
    path = _log_of(tmp_path)
    path.unlink()
    result = verify(path)
    assert (result.ok, result.finding) == (False, "no_log")
    assert f"its head file {path}.head remembers 8 lines" in result.message


def test_a_head_that_lies(tmp_path: Path) -> None:
    path = _log_of(tmp_path)
    for count in (-1, 3, 8, 10**11):
        head = b'{"count":%12d,"hash":"%b"}\n' % (count, b"a" * 64)
        Path(f"{path}.head").write_bytes(head)
        assert not verify(path).ok


def test_every_answer_says_what_it_cannot_show(tmp_path: Path) -> None:
    assert str(verify(_log_of(tmp_path))) == (
        "All 8 lines are intact. "
        "Anyone who can write both the log and its head file can forge them."
    )


def test_a_log_that_cannot_be_read_is_an_audit_error(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(AuditError, match="cannot read the audit log"):
            verify(path)
        with pytest.raises(AuditError, match="cannot read the audit log"):
            list(show(path))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _log_of(tmp_path_factory.mktemp("audit"), 6)


changes = st.sampled_from(["edit", "remove", "swap", "duplicate", "cut", "insert", "flip"])


@given(changes, st.integers(0, 13), st.integers(0, 13), st.integers(0, 10_000), st.data())
def test_any_single_change_is_found(
    written: Path, change: str, at: int, other: int, offset: int, data: st.DataObject
) -> None:
    original = written.read_bytes()
    lines = original.splitlines(keepends=True)
    assert len(lines) == 14
    if change == "edit":
        place = offset % len(lines[at])
        text = data.draw(st.binary(max_size=5))
        lines[at] = lines[at][:place] + text + lines[at][place + 1 :]
    elif change == "flip":
        place, bit = offset % len(lines[at]), 1 << (offset % 8)
        flipped = bytes([lines[at][place] ^ bit])
        lines[at] = lines[at][:place] + flipped + lines[at][place + 1 :]
    elif change == "remove":
        del lines[at]
    elif change == "swap":
        lines[at], lines[other] = lines[other], lines[at]
    elif change == "duplicate":
        lines.insert(other, lines[at])
    elif change == "insert":
        lines.insert(at, data.draw(st.binary(min_size=1, max_size=20)))
    else:
        lines = [b"".join(lines)[: offset % len(original)]]
    changed = b"".join(lines)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "log.jsonl"
        copy.write_bytes(changed)
        Path(f"{copy}.head").write_bytes(Path(f"{written}.head").read_bytes())
        result = verify(copy)
        list(show(copy))
    assert result.ok == (changed == original)
    if not result.ok and change in ("edit", "flip", "remove"):
        assert result.line is not None
        assert result.line <= at + 2


# show


def test_show_reads_well_and_cannot_deceive(tmp_path: Path) -> None:
    with AuditLog(tmp_path, "s1") as log:
        events: list[Event] = [
            _decision(1, arguments='{"cmd": "ls\x1b[2K\u202e\u200b"}' + "x" * 500),
            _decision(2, verdict="ask", rule="writes ask"),
            _end(1, exit_code=0),
            _decision(2, verdict="allow", source="user", rule="approved once"),
            _end(
                2,
                success=False,
                failure="timed_out",
                duration=61.25,
                files=[FileChange("/w/a", None, "ab" * 32)],
            ),
            _decision(3, verdict="deny", tool="shell\r\nok"),
        ]
        for event in events:
            log.on_event(event)
    rows = list(show(str(log.path)))
    assert [row.tool for row in rows] == [
        "session_start",
        "read_file",
        "read_file",
        "session_end",
        "shell⟨CR⟩⟨LF⟩ok",
    ]
    first, second, unanswered = rows[1], rows[2], rows[4]
    assert first.time == "2023-11-14 22:13:20+00:00"
    assert (first.verdict, first.result, first.duration) == ("allow", "ok (exit 0)", "12.3 ms")
    assert first.arguments.startswith('{"cmd": "ls⟨ESC⟩[2K⟨U+202E⟩⟨U+200B⟩"}')
    assert len(first.arguments) < 130
    assert (second.verdict, second.result) == ("ask, allow by user", "timed_out")
    assert second.duration == "61.2 s"
    assert second.details == [
        "ask: writes ask",
        "allow by user: approved once",
        "/w/a: - -> abababababab",
    ]
    assert (unanswered.verdict, unanswered.result) == ("deny", "no result")
    assert str(second) == (
        "2023-11-14 22:13:20+00:00  read_file  ask, allow by user  timed_out  61.2 s  "
        '{"file_path":"README.md"}'
    )
    assert all(str(row).isprintable() for row in rows)


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.dictionaries(
                st.sampled_from(
                    ["type", "call_id", "tool", "time", "duration", "success", "files", "source"]
                ),
                st.one_of(
                    st.sampled_from(["decision", "result", "session_start"]),
                    st.none(),
                    st.floats(),
                    st.integers(),
                    st.lists(st.dictionaries(st.text(max_size=3), st.none(), max_size=2)),
                ),
            ).map(lambda record: json.dumps(record).encode()),
        ),
        max_size=6,
    )
)
def test_show_never_fails_on_what_it_reads(lines: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        path.write_bytes(b"\n".join(lines))
        assert all(str(row).isprintable() for row in show(path))
        assert not verify(path).ok


def test_one_file_for_all_sessions_is_one_chain(tmp_path: Path) -> None:
    with (
        AuditLog(tmp_path, "one", file="audit.log") as one,
        AuditLog(tmp_path, "two", file="audit.log") as two,
    ):
        for number in range(1, 6):
            for log in (one, two):
                log.on_event(_decision(number))
                log.on_event(_end(number))
    path = tmp_path / "audit.log"
    assert str(path) == one.path == two.path
    assert verify(path).ok
    assert [line["session"] for line in _records(path)].count("one") == 12
    assert len([row for row in show(path) if row.tool == "read_file"]) == 10


def test_a_shared_log_goes_on_after_a_crash_and_shows_what_was_cut(tmp_path: Path) -> None:
    def write() -> None:
        with AuditLog(tmp_path, "s", file="audit.log") as log:
            log.open()

    path, head = tmp_path / "audit.log", tmp_path / "audit.log.head"
    write()
    before = head.read_bytes()
    write()
    head.write_bytes(before)  # died before the head was written,
    with path.open("ab") as torn:  # or within a line
        torn.write(b'{"n":5,"pre')
    write()
    assert verify(path).ok
    kept = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(kept[:-2]))
    write()
    assert verify(path).finding == "removed"


def test_a_file_of_others_is_no_shared_log(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine\n")
    (tmp_path / "open.log").touch(0o666)
    (tmp_path / "open.log").chmod(0o666)
    (tmp_path / "link.log").symlink_to("elsewhere")
    for name in ("notes.txt", "open.log", "link.log"):
        log = AuditLog(tmp_path, "s", file=name)
        with pytest.raises(AuditError, match="audit_log_path"):
            log.open()
    assert (tmp_path / "notes.txt").read_text() == "mine\n"
