"""Every byte that a patch does not mention stays; what it says is what comes out."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.patch.codex_grammar import parse
from toolrest.patch.files.os_files import OsFiles
from toolrest.patch.run import run
from toolrest.patch.text.rebuild import updated

ENCODINGS: dict[str, tuple[bytes, str, str | None]] = {
    "utf-8": (b"", "utf-8", None),
    "utf-8 with a mark": (codecs.BOM_UTF8, "utf-8", None),
    "utf-16-le": (codecs.BOM_UTF16_LE, "utf-16-le", None),
    "utf-16-be": (codecs.BOM_UTF16_BE, "utf-16-be", None),
    "latin-1": (b"", "latin-1", "latin-1"),
}
WORDS = ["a", "b", "  a", "a  ", "", "}", "\tx", "é", "a\x0bb", "\x1c", "ÿ", "-", "+", "@@", "***"]

words = st.sampled_from(WORDS)
endings = st.sampled_from(["\n", "\r\n", "\r"])


@dataclass
class Script:
    """A file, and lines of it that are to be replaced: (first, behind the last, new lines)."""

    lines: list[tuple[str, str]]
    edits: list[tuple[int, int, list[str]]]

    @property
    def text(self) -> str:
        return "".join(text + ending for text, ending in self.lines)

    @property
    def ending(self) -> str:
        return next((ending for _, ending in self.lines if ending), "\n")

    @property
    def wanted(self) -> str:
        out, at = [], 0
        for first, behind, new in self.edits:
            out += self.lines[at:first] + [(line, self.ending) for line in new]
            at = behind
        out += self.lines[at:]
        return "".join(text + (ending or self.ending) for text, ending in out)


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    texts = draw(st.lists(words, max_size=14))
    usual = draw(endings)
    kinds = st.just(usual) | endings if draw(st.booleans()) else st.just(usual)
    lines = [(text, draw(kinds)) for text in texts]
    unterminated = draw(st.booleans())
    if lines and unterminated:
        # A last line without text and ending would not be a line.
        lines[-1] = (lines[-1][0] or "z", "")
    # A CR before an LF would be one ending.
    for i in range(len(lines) - 1):
        if lines[i][1] == "\r" and lines[i + 1] == ("", "\n"):
            lines[i + 1] = ("", "\r")
    edits: list[tuple[int, int, list[str]]] = []
    at = 0
    while at <= len(lines) and len(edits) < 4:
        first = draw(st.integers(at, len(lines)))
        behind = draw(st.integers(first, min(first + 3, len(lines))))
        new = draw(st.lists(words, max_size=3))
        if behind > first or new:
            edits.append((first, behind, new))
        at = behind + 1
        if not draw(st.booleans()):
            break
    return Script(lines, edits)


def as_patch(script: Script) -> str:
    """A patch for these edits, each with the least context that makes its place the first one."""
    out = ["*** Begin Patch", "*** Update File: f"]
    texts = [text for text, _ in script.lines]
    cursor = 0
    for index, (first, behind, new) in enumerate(script.edits):
        following = script.edits[index + 1][0] if index + 1 < len(script.edits) else len(texts)
        start, stop = first, behind
        while start > cursor and not _is_first(texts, cursor, start, stop):
            start -= 1
        while stop < following and not _is_first(texts, cursor, start, stop):
            stop += 1
        if not _is_first(texts, cursor, start, stop) and not (first == len(texts) == start):
            raise AssertionError("no context makes this place unique")
        out.append("@@")
        out += [f" {line}" for line in texts[start:first]]
        out += [f"-{line}" for line in texts[first:behind]]
        out += [f"+{line}" for line in new]
        out += [f" {line}" for line in texts[behind:stop]]
        cursor = stop
    return "\n".join([*out, "*** End Patch"])


def _is_first(texts: list[str], cursor: int, start: int, stop: int) -> bool:
    """Found right at the cursor, or with lines that are nowhere else from there, even loosely."""
    if start == stop:
        return False
    if start == cursor:
        return True
    wanted = [text.strip() for text in texts[start:stop]]
    size = stop - start
    places = [
        i
        for i in range(cursor, len(texts) - size + 1)
        if [text.strip() for text in texts[i : i + size]] == wanted
    ]
    return places == [start]


@pytest.mark.parametrize("name", ENCODINGS)
@given(script=scripts())
def test_an_edit_script_as_a_patch(name: str, script: Script) -> None:
    mark, encoding, legacy = ENCODINGS[name]
    if name == "latin-1":
        # Bytes that are not UTF-8, so that the setting decides.
        script.lines.insert(0, ("\xe9t\xe9", script.ending))
        script.edits = [(first + 1, behind + 1, new) for first, behind, new in script.edits]
    if not script.edits:
        return
    before = mark + script.text.encode(encoding)
    (update,) = parse(as_patch(script)).operations
    after = updated(before, update.chunks, "f", legacy)  # type: ignore[union-attr]
    assert after == mark + script.wanted.encode(encoding)


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_through_the_disk(tmp_path: Path, ending: str) -> None:
    for mark, encoding, legacy in ENCODINGS.values():
        path = tmp_path / "f"
        path.write_bytes(mark + f"é{ending}b{ending}ÿ".encode(encoding))
        patch = "*** Begin Patch\n*** Update File: f\n@@\n-b\n+B\n+\n*** End Patch"
        with OsFiles() as files:
            assert run(patch, files, str(tmp_path), legacy).exit_code == 0
        wanted = f"é{ending}B{ending}{ending}ÿ{ending}"
        assert path.read_bytes() == mark + wanted.encode(encoding)


def test_a_mark_that_the_patch_does_not_show(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(codecs.BOM_UTF8 + b"x\nz\n")
    patch = "*** Begin Patch\n*** Update File: f\n@@\n-x\n+y\n*** End Patch"
    with OsFiles() as files:
        assert run(patch, files, str(tmp_path)).exit_code == 0
    assert (tmp_path / "f").read_bytes() == codecs.BOM_UTF8 + b"y\nz\n"


@pytest.mark.parametrize(
    ("data", "legacy"),
    [
        (b"\xe9\nx\n", None),
        (b"\xe9\nx\n", "no such encoding"),
        (b"\x81\nx\n", "cp1252"),
        (codecs.BOM_UTF32_LE + "x\n".encode("utf-32-le"), None),
        (codecs.BOM_UTF16_LE + b"x\0\n\0\0\xd8", None),
        (codecs.BOM_UTF16_LE + b"x\0\n", None),
    ],
)
def test_bytes_that_are_no_text_are_refused(
    tmp_path: Path, data: bytes, legacy: str | None
) -> None:
    (tmp_path / "f").write_bytes(data)
    patch = "*** Begin Patch\n*** Update File: f\n@@\n-x\n+y\n*** End Patch"
    with OsFiles() as files:
        outcome = run(patch, files, str(tmp_path), legacy)
    assert outcome.exit_code == 1
    assert "utf-8" in outcome.stderr
    assert (tmp_path / "f").read_bytes() == data


def test_a_character_that_the_file_cannot_hold(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xe9\nx\n")
    patch = "*** Begin Patch\n*** Update File: f\n@@\n-x\n+→\n*** End Patch"
    with OsFiles() as files:
        outcome = run(patch, files, str(tmp_path), "latin-1")
    assert outcome.stderr == f"Failed to write file {tmp_path}/f\n"
    assert "U+2192" in outcome.notes[0]
    assert (tmp_path / "f").read_bytes() == b"\xe9\nx\n"
