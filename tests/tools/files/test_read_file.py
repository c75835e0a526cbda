"""read_file: the documented vectors, every kind of line and file, and models written apart."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest import Context, Toolrest, tool
from toolrest.errors import RespondToModel
from toolrest.gate.tool.args_class import make
from toolrest.items import ToolOutput
from toolrest.policy.paths.policy import PathPolicy
from toolrest.tools.files.read_file import Job, ReadFile, plan

Call = Callable[..., Awaitable[ToolOutput]]


def read(path: Path, **arguments: Any) -> str:
    """The lines without the gate, for property tests; the error's words when it fails."""
    files = PathPolicy("/", homes=[], toolrest_home=f"{path}-home", max_file_size=1 << 40)
    try:
        job = Job(files, str(path), plan(make(ReadFile.Args, file_path=str(path), **arguments)))
        return job.finish(job.open()[0]).text
    except RespondToModel as error:
        return error.message


# The documented texts


async def test_lines_are_numbered_and_blank_ones_keep_the_space(call: Call, work: Path) -> None:
    (work / "a.py").write_text("import os\n\ndef f():\n")
    output = await call("read_file", file_path="a.py")
    assert output.text == "L1: import os\nL2: \nL3: def f():"
    assert output.success
    assert output.provenance == "workspace"
    absolute = await call("read_file", file_path=str(work / "a.py"), offset=2, limit=1)
    assert absolute.text == "L2: "


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"offset": 0}, "offset must be a 1-indexed line number"),
        ({"offset": 0, "limit": 0}, "offset must be a 1-indexed line number"),
        ({"limit": 0}, "limit must be greater than zero"),
        ({"offset": 4}, "offset exceeds file length"),
        ({"offset": 10**30}, "offset exceeds file length"),
        (
            {"mode": "indentation", "indentation": {"anchor_line": 0}},
            "anchor_line must be a 1-indexed line number",
        ),
        (
            {"mode": "indentation", "indentation": {"max_lines": 0}},
            "max_lines must be greater than zero",
        ),
        (
            {"mode": "indentation", "indentation": {"anchor_line": 0, "max_lines": 0}},
            "anchor_line must be a 1-indexed line number",
        ),
        (
            {"mode": "indentation", "indentation": {"anchor_line": 4}},
            "anchor_line exceeds file length",
        ),
        ({"mode": "indentation", "offset": 9}, "anchor_line exceeds file length"),
    ],
)
async def test_numbers_that_make_no_sense(
    call: Call, work: Path, arguments: dict[str, Any], text: str
) -> None:
    (work / "a").write_text("1\n2\n3\n")
    output = await call("read_file", file_path="a", **arguments)
    assert output.text == text
    assert output.failure is not None
    assert output.failure.kind == "input_invalid"
    assert output.failure.fields


async def test_numbers_are_checked_before_the_file_is_opened(call: Call) -> None:
    output = await call("read_file", file_path="missing", limit=0)
    assert output.text == "limit must be greater than zero"


@pytest.mark.parametrize(
    "arguments",
    [
        {"offset": -1},
        {"limit": 1.5},
        {"limit": "3"},
        {"mode": "other"},
        {"indentation": {"max_levels": -1}},
        {"indentation": []},
        {"file_path": 3},
    ],
)
async def test_wrong_types_are_refused_by_name(call: Call, arguments: dict[str, Any]) -> None:
    output = await call("read_file", **{"file_path": "a"} | arguments)
    assert output.text.startswith("failed to parse function arguments: ")
    assert next(iter(arguments)) in output.text


async def test_system_errors_are_told_in_their_usual_form(call: Call, work: Path) -> None:
    (work / "loop").symlink_to("loop")
    for path, words in [
        ("missing", "No such file or directory (os error 2)"),
        (".", "Is a directory (os error 21)"),
        ("loop", "Too many levels of symbolic links (os error 40)"),
        ("x" * 300, "File name too long (os error 36)"),
    ]:
        output = await call("read_file", file_path=path)
        assert output.text == f"failed to read file: {words}"
        assert output.success is False


async def test_an_empty_file_has_no_first_line(call: Call, work: Path) -> None:
    (work / "empty").write_bytes(b"")
    assert (await call("read_file", file_path="empty")).text == "offset exceeds file length"
    output = await call("read_file", file_path="empty", mode="indentation")
    assert output.text == "anchor_line exceeds file length"


def test_permission_denied_is_told(work: Path, as_user: Callable[..., Any]) -> None:
    secret = work / "secret"
    secret.write_text("x")
    secret.chmod(0o600 if os.getuid() == 0 else 0o000)
    text = as_user(lambda: read(secret))
    assert text == "failed to read file: Permission denied (os error 13)"


# Lines


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"a\r", ["a\r"]),
        (b"a\r\r\n", ["a\r"]),
        (b"\r\n", [""]),
        (b"\n", [""]),
        (b"\n\n", ["", ""]),
        (b"no end", ["no end"]),
        (b"a\n\r", ["a", "\r"]),
        (b"\xff\xfe\nplain\n", ["��", "plain"]),
        (b"a\xe2\x82\nb\xf0\x9f\x98", ["a�", "b�"]),
        (b"\xed\xa0\x80", ["���"]),
        ("\u2028\x0b\x0c\x85é".encode(), ["\u2028\x0b\x0c\x85é"]),
        (b"\xef\xbb\xbfbom\n", ["\ufeffbom"]),
        (b"x" * 500, ["x" * 500]),
        (b"x" * 500 + b"\r\n", ["x" * 500]),
        (b"x" * 499 + "é".encode(), ["x" * 499]),
        (b"x" * 498 + "é".encode(), ["x" * 498 + "é"]),
        (b"x" * 497 + "😀".encode(), ["x" * 497]),
        (b"\xff" * 20 + b"\n" + b"y" * 501, ["�" * 20, "y" * 500]),
        (b"ok " * 120 + b"\xff" * 100, ["ok " * 120 + "�" * 46]),
    ],
)
def test_kinds_of_lines(tmp_path: Path, data: bytes, lines: list[str]) -> None:
    file = tmp_path / "f"
    file.write_bytes(data)
    assert read(file) == "\n".join(f"L{n}: {line}" for n, line in enumerate(lines, 1))


async def test_a_cut_line_is_noted_last(call: Call, work: Path) -> None:
    (work / "long").write_text("short\n" + "x" * 501 + "\n" + "y" * 9000 + "\n")
    output = await call("read_file", file_path="long")
    assert output.text == (
        f"L1: short\nL2: {'x' * 500}\nL3: {'y' * 500}\n[toolrest] cut at 500 bytes: L2, L3"
    )


async def test_more_lines_are_noted_unless_the_model_chose_the_limit(
    call: Call, work: Path
) -> None:
    (work / "many").write_text("x\n" * 2001)
    read_with_default = PathPolicy(work)
    job = Job(read_with_default, "many", plan(make(ReadFile.Args, file_path="many")))
    output = job.finish(job.open()[0])
    assert output.notes == ["more lines follow; continue with offset 2001"]
    chosen = await call("read_file", file_path="many", limit=5)
    assert chosen.text == "\n".join(f"L{n}: x" for n in range(1, 6))
    (work / "exact").write_text("x\n" * 2000)
    job = Job(read_with_default, "exact", plan(make(ReadFile.Args, file_path="exact")))
    assert job.finish(job.open()[0]).notes == []


def naive_lines(data: bytes) -> list[str]:
    """The text of tools.md toolrest11.1 on lines, as plainly as it can be written."""
    parts = data.split(b"\n")
    ended, last = parts[:-1], parts[-1]
    raw = [line[:-1] if line.endswith(b"\r") else line for line in ended]
    if last:
        raw.append(last)
    texts = []
    for line in raw:
        text = line.decode("utf-8", "replace")
        while len(text.encode()) > 500:
            text = text[:-1]
        texts.append(text)
    return texts


line_bytes = st.lists(
    st.one_of(
        st.sampled_from(
            [b"\n", b"\r\n", b"\r", b"\n\n", b" ", b"a", b"\xff", b"\xe2\x82", "é😀".encode()]
        ),
        st.integers(490, 515).map(lambda n: b"x" * n),
        st.integers(40, 60).map(lambda n: b"abcdefgh\xc3" * n),
    ),
    max_size=25,
).map(b"".join)


@given(data=line_bytes, offset=st.integers(1, 20), limit=st.integers(1, 20))
def test_slices_agree_with_the_naive_model(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, offset: int, limit: int
) -> None:
    file = tmp_path_factory.getbasetemp() / "slice"
    file.write_bytes(data)
    lines = naive_lines(data)
    wanted = [f"L{n}: {text}" for n, text in enumerate(lines, 1) if offset <= n < offset + limit]
    expected = "\n".join(wanted) if wanted else "offset exceeds file length"
    assert read(file, offset=offset, limit=limit) == expected


def test_lines_across_the_pieces_of_a_large_file(tmp_path: Path) -> None:
    # Lengths that put `\r\n`, characters and long lines across the borders of what is read.
    file = tmp_path / "large"
    lines = [("é" if n % 3 else "\r") * (n % 700) for n in range(3000)]
    data = "\r\n".join(lines).encode()
    file.write_bytes(data)
    expected = naive_lines(data)
    assert len(expected) == 3000
    assert read(file, limit=5000) == "\n".join(f"L{n}: {t}" for n, t in enumerate(expected, 1))
    assert read(file, offset=2990, limit=3) == "\n".join(
        f"L{n}: {expected[n - 1]}" for n in (2990, 2991, 2992)
    )


# Files that are not plain text


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"\x7fELF\x02\x01\x01\0", "an ELF program or library, 108 bytes"),
        (b"%PDF-1.7\n", "a PDF document"),
        (b"PK\x03\x04\0", "a ZIP archive"),
        (b"\x1f\x8b\x08\0", "gzip-compressed data"),
        (b"SQLite format 3\0", "an SQLite database"),
        (b"\0\x01\x02", "binary data"),
        (b"\xff\xfe\0\0h\0\0\0", "UTF-32 text"),
        (b"\x80\x81" * 40, "binary data"),
    ],
)
async def test_binary_files_are_refused_with_type_and_size(
    call: Call, work: Path, head: bytes, words: str
) -> None:
    (work / "bin").write_bytes(head + b"x" * 100 if b"\0" in head else head)
    output = await call("read_file", file_path="bin")
    assert output.text.startswith("failed to read file: bin is not text but ")
    assert words in output.text
    assert "bytes" in output.text
    assert "view_image" not in output.text


async def test_text_that_starts_like_a_binary_is_text(call: Call, work: Path) -> None:
    for start in ("BMW", "MZ", "BZh", "GIF89a", "ID3", "PAR1"):
        (work / "t").write_text(f"{start} is only a word\n")
        assert (await call("read_file", file_path="t")).text == f"L1: {start} is only a word"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
async def test_utf16_with_a_mark_is_decoded(call: Call, work: Path, encoding: str) -> None:
    text = "\ufeffline é\r\n日本\n\nend"
    (work / "u16").write_bytes(text.encode(encoding))
    output = await call("read_file", file_path="u16")
    assert output.text == "L1: line é\nL2: 日本\nL3: \nL4: end"
    (work / "cjk").write_bytes(("\ufeff" + "日本語" * 40).encode(encoding))
    assert (await call("read_file", file_path="cjk")).text == "L1: " + "日本語" * 40
    (work / "odd").write_bytes(text.encode(encoding) + b"\0")
    assert (await call("read_file", file_path="odd")).text.endswith("end�")


async def test_a_few_bad_bytes_do_not_make_a_file_binary(call: Call, work: Path) -> None:
    (work / "latin").write_bytes("Grüße aus Köln, schöne Straße\n".encode("latin-1") * 20)
    output = await call("read_file", file_path="latin", limit=1)
    assert output.text == "L1: Gr��e aus K�ln, sch�ne Stra�e"


async def test_special_files_are_refused_at_once(call: Call, work: Path) -> None:
    os.mkfifo(work / "fifo")
    for path in ("fifo", "/dev/zero", "/dev/tty", "/proc/self/environ", "/proc/kmsg"):
        async with asyncio.timeout(60):
            output = await call("read_file", file_path=path)
        assert output.failure is not None
        assert output.failure.kind == "policy_denied", path
        assert "cannot be read" in output.text


async def test_hidden_files_and_bad_paths_are_refused(call: Call, work: Path) -> None:
    (work / ".env").write_text("SECRET=hunter2")
    (work / "link").symlink_to(".env")
    for path in (".env", "link", "./x/../.env"):
        output = await call("read_file", file_path=path)
        assert "hunter2" not in output.text
        assert "hidden" in output.text
    output = await call("read_file", file_path="a\0b")
    assert output.failure is not None
    assert output.failure.kind == "input_invalid"


# Size


async def test_the_size_limit_is_the_settings(work: Path) -> None:
    from toolrest import Toolrest

    (work / "big").write_bytes(b"x\n" * 501)
    settings = {"tool_security.max_file_access_size": 1000}
    async with Toolrest(workspace=work, settings=settings) as rest:
        output = await rest.call("read_file", {"file_path": "big", "limit": 1})
        assert "1,002 bytes" in output.text
        assert "max_file_access_size is 1,000" in output.text
        output = await rest.call("read_file", {"file_path": "/proc/mounts"})
        assert output.success or "max_file_access_size" in output.text


def test_a_huge_file_is_read_in_little_memory(tmp_path: Path, full: bool) -> None:
    file = tmp_path / "huge"
    size = 1 << 30
    with file.open("wb") as stream:
        stream.write(b"first\n" + b"y" * 10_000)
        stream.truncate(size)  # one line of NUL bytes after the head, which takes no disk
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read(file, limit=1) == "L1: first"
    if full:
        assert read(file, limit=2).startswith("L1: first\nL2: yyy")
        assert read(file, offset=3) == "offset exceeds file length"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 50_000, f"{grown} KiB more"


def test_a_huge_limit_is_bounded_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "wide"
    file.write_bytes((b"z" * 499 + b"\n") * 40_000)
    files = PathPolicy(tmp_path)
    job = Job(files, str(file), plan(make(ReadFile.Args, file_path=str(file), limit=10**9)))
    output = job.finish(job.open()[0])
    shown = output.text.count("\n") + 1
    assert shown < 40_000
    assert output.notes == [f"more lines follow; continue with offset {shown + 1}"]


def test_the_schema_is_the_documented_one() -> None:
    schema = ReadFile().parameters
    assert schema["required"] == ["file_path"]
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == {"file_path", "indentation", "limit", "mode", "offset"}
    assert schema["properties"]["mode"]["enum"] == ["slice", "indentation"]
    inner = schema["properties"]["indentation"]
    assert set(inner["properties"]) == {
        "anchor_line",
        "include_header",
        "include_siblings",
        "max_levels",
        "max_lines",
    }
    assert "required" not in inner


# What a session keeps of a read


async def test_what_this_session_spilled_can_be_paged_whatever_its_size(work: Path) -> None:
    @tool(mutating=False)
    def big() -> str:
        return "a line of text\n" * 20_000

    settings = {"tool_security.max_file_access_size": 1000}
    async with Toolrest(work, tools=[big], settings=settings) as rest:
        shown = (await rest.call("big")).text
        (spilled,) = {word for word in shown.split() if "/spill/" in word}
        page = await rest.call("read_file", {"file_path": spilled, "offset": 15_000, "limit": 2})
        assert page.text == "L15000: a line of text\nL15001: a line of text"
        (work / "link").symlink_to(spilled)
        (work / "big").write_text("x" * 2000)
        assert (await rest.call("read_file", {"file_path": "link", "limit": 1})).success
        assert "max_file_access_size" in (await rest.call("read_file", {"file_path": "big"})).text
        async with Toolrest(work, settings=settings) as other:
            denied = await other.call("read_file", {"file_path": spilled})
            assert denied.failure is not None


@pytest.mark.parametrize("size", [1, 5000, 300_000])
async def test_the_hash_of_a_small_file_is_kept(work: Path, size: int) -> None:
    text = ("0123456789abcde\n" * (size // 16 + 1))[:size]
    (work / "f").write_text(text)
    kept: list[str | None] = []

    class Watched(ReadFile):
        async def run(self, args: ReadFile.Args, ctx: Context) -> ToolOutput:
            output = await super().run(args, ctx)
            stamp = ctx.session.files_read.of(ctx.resolve("f"))
            assert stamp is not None
            kept.append(stamp.sha256)
            return output

    async with Toolrest(work, tools=[Watched], override=True) as rest:
        output = await rest.call("read_file", {"file_path": "f", "limit": 1})
    assert output.text.startswith("L1: ")
    small = size < 1 << 18
    assert kept == [hashlib.sha256(text.encode()).hexdigest() if small else None]
