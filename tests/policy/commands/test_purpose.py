"""What a command line is for, in the words of events."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolrest.policy.commands.purpose import MAX_LENGTH, parsed_command
from toolrest.policy.verdict.command import judge
from toolrest.policy.verdict.verdict import CommandClass

FULL = os.environ.get("TOOLREST_TEST_FULL") == "1"
TABLE = Path(__file__).parents[2] / "data" / "commands.jsonl"
COMMANDS: list[str] = [json.loads(line)["command"] for line in TABLE.read_text().splitlines()]


def read(cmd: str, path: str) -> dict[str, Any]:
    return {"type": "read", "cmd": cmd, "name": path.rpartition("/")[2], "path": path}


def listed(cmd: str, path: str | None = None) -> dict[str, Any]:
    return {"type": "list_files", "cmd": cmd, "path": path}


def search(cmd: str, query: str, path: str | None = None) -> dict[str, Any]:
    return {"type": "search", "cmd": cmd, "query": query, "path": path}


READS = [
    ("cat README.md", [read("cat README.md", "README.md")]),
    ("cat a/b.py c.py", [read("cat a/b.py c.py", "a/b.py"), read("cat a/b.py c.py", "c.py")]),
    ("head -n 50 Cargo.toml", [read("head -n 50 Cargo.toml", "Cargo.toml")]),
    ("head -50 x", [read("head -50 x", "x")]),
    ("tail -n +522 x", [read("tail -n +522 x", "x")]),
    ("sed -n '1,20p' src/a.py", [read("sed -n 1,20p src/a.py", "src/a.py")]),
    ("sed -n '1,5p;9,$p' a", [read("sed -n '1,5p;9,$p' a", "a")]),
    ("nl -ba src/a.py | sed -n 10,20p", [read("nl -ba src/a.py", "src/a.py")]),
    ("bat -p --line-range 1:20 x", [read("bat -p --line-range 1:20 x", "x")]),
    ("less -N notes.txt", [read("less -N notes.txt", "notes.txt")]),
    ("jq .a data.json", [read("jq .a data.json", "data.json")]),
    ("awk 'NR>=5 && NR<=9' x.c", [read("awk 'NR>=5 && NR<=9' x.c", "x.c")]),
    ("/bin/cat x", [read("/bin/cat x", "x")]),
    ("cat < in.txt", [read("cat", "in.txt")]),
    ("cat src/*.py", [read("cat src/*.py", "src/*.py")]),
    ("cat 'a file'", [read("cat 'a file'", "a file")]),
    ("cat x 2>/dev/null || true", [read("cat x", "x")]),
    ("LANG=C cat x 2>&1", [read("cat x", "x")]),
    ("timeout 5 cat x", [read("timeout 5 cat x", "x")]),
    ("cd foo && cat bar.txt", [read("cat bar.txt", "foo/bar.txt")]),
    ("cd foo; cd ./bar && cat ./x", [read("cat ./x", "foo/bar/x")]),
    ("cd foo && cat /etc/hosts", [read("cat /etc/hosts", "/etc/hosts")]),
    ("(cd a && cat b) && cat c", [read("cat b", "a/b"), read("cat c", "c")]),
    ("bash -lc 'cat x'", [read("cat x", "x")]),
    ("cat a; echo ---; cat b", [read("cat a", "a"), read("cat b", "b")]),
    ("cat a # to see it", [read("cat a", "a")]),
]
LISTS = [
    ("ls", [listed("ls")]),
    ("ls -la src", [listed("ls -la src", "src")]),
    ("ls -la | head -20", [listed("ls -la")]),
    ("cd src && ls", [listed("ls", "src")]),
    ("cd src && ls .", [listed("ls .", "src")]),
    ("tree -L 2 src", [listed("tree -L 2 src", "src")]),
    ("find . -type f | sort | uniq -c | wc -l", [listed("find . -type f", ".")]),
    ("find -H", [listed("find -H")]),
    ("rg --files webview/src | head", [listed("rg --files webview/src", "webview/src")]),
    ("rg --files -g '*.py'", [listed("rg --files -g '*.py'")]),
    ("git ls-files src", [listed("git ls-files src", "src")]),
    ("git -C sub ls-files", [listed("git -C sub ls-files", "sub")]),
    ("fd", [listed("fd")]),
    ("pwd && ls", [listed("ls")]),
    ("ls *.py", [listed("ls *.py", "*.py")]),
]
SEARCHES = [
    ("rg -n 'a b' src", [search("rg -n 'a b' src", "a b", "src")]),
    ("rg -A 3 -e x -- y", [search("rg -A 3 -e x -- y", "x", "y")]),
    ("rg TODO | head -200", [search("rg TODO", "TODO")]),
    ("grep -rn TODO .", [search("grep -rn TODO .", "TODO", ".")]),
    ("grep TODO < x", [search("grep TODO", "TODO", "x")]),
    ("git grep -n foo -- src", [search("git grep -n foo -- src", "foo", "src")]),
    ("git grep foo HEAD -- src", [search("git grep foo HEAD -- src", "foo", "src")]),
    ("git --no-pager grep foo", [search("git --no-pager grep foo", "foo")]),
    ("ag -i foo lib", [search("ag -i foo lib", "foo", "lib")]),
    ("fd -t f conf src", [search("fd -t f conf src", "conf", "src")]),
    ("find . -name '*.py'", [search("find . -name '*.py'", "*.py", ".")]),
    ("find src \\( -iname a -o -name b \\)", [search("find src '(' -iname a -o -name b ')'", "a", "src")]),  # noqa: E501
    ("cd a && rg x", [search("rg x", "x", "a")]),
    ("cat x | grep y", [read("cat x", "x"), search("grep y", "y")]),
    ("rg -l x | xargs cat", [search("rg -l x", "x")]),
    ("fd -e py | xargs grep -n y", [listed("fd -e py"), search("xargs grep -n y", "y")]),
    ("rg --files | rg -v test | sed 's/^a//'", [listed("rg --files"), search("rg -v test", "test")]),  # noqa: E501
]  # fmt: skip
UNKNOWN = """
git status
git log --oneline
pytest -q
cat
cat x > y
cat x | tee y
cat x && rm y
ls; make
ls & cat x
echo hi
rg --version
rg --pre ./run x
rg --files | xargs rm
rg -f patterns x
find . -name x -delete
find . -exec rm {} +
fd -x rm
fd x -X cat
bat --pager ./run x
sed -i s/a/b/ x
sed -n '1w y' x
sed 's/a/id/e' x
awk '{print > "y"}' x
awk 'BEGIN{system("id")}' x
cat $FILE
cat $(ls)
cat "$HOME/x"
X=$(id) cat x
PATH=. cat x
FOO=1 cat x
./cat x
cd && ls
cd - && ls
cd $X && ls
cat <<EOF
cat <<< x
cat <(id)
for f in *; do cat $f; done
if true; then cat x; fi
f() { cat x; }
bash script.sh
bash -c 'cat x; rm y'
sudo cat x
ssh host cat x
python -c 'print(1)'
git -c a.b=c grep x
git grep -O x
ls 'unfinished
sort x
sort -o y x
""".strip().splitlines()


@pytest.mark.parametrize(("line", "parts"), READS + LISTS + SEARCHES)
def test_lines_that_only_look_are_told_part_by_part(line: str, parts: list[dict[str, Any]]) -> None:
    assert list(parsed_command(line)) == parts
    assert list(parsed_command(("/bin/bash", "-lc", line))) == parts


@pytest.mark.parametrize("line", UNKNOWN)
def test_whatever_else_is_one_unknown(line: str) -> None:
    assert parsed_command(line) == ({"type": "unknown", "cmd": line},)
    assert parsed_command(("bash", "-c", line)) == ({"type": "unknown", "cmd": line},)


def test_argument_vectors_are_taken_as_they_are() -> None:
    assert parsed_command(("cat", "$x y")) == (read("cat '$x y'", "$x y"),)
    assert parsed_command(("make", "a b")) == ({"type": "unknown", "cmd": "make 'a b'"},)
    assert parsed_command(()) == ({"type": "unknown", "cmd": ""},)
    assert parsed_command(("",)) == ({"type": "unknown", "cmd": "''"},)


def test_very_long_lines_are_not_read_again() -> None:
    line = "cat " + "x" * MAX_LENGTH
    assert parsed_command(line) == ({"type": "unknown", "cmd": line},)


SHAPES = {
    "read": {"type", "cmd", "name", "path"},
    "list_files": {"type", "cmd", "path"},
    "search": {"type", "cmd", "query", "path"},
    "unknown": {"type", "cmd"},
}
PIECES = """
ls cat head -n 5 tail sed -n 1,5p -i nl bat less tree find . -name x -exec -delete rg --files grep
-r git grep ls-files -C fd ag jq awk xargs {} -I cd .. a/b 'c d' $x $(id) `id` *.py ~ > < >> <<
EOF 2>&1 2>/dev/null | || & && ; ( ) { } ! # -- - -e --version bash -lc sudo env LANG=C timeout X=1
if then fi for in do done '' " ' \\ \n wc sort uniq echo true
""".replace("\n", " \n ").split(" ")
any_line = st.one_of(
    st.text(max_size=60),
    st.lists(st.sampled_from(PIECES), max_size=14).map(" ".join),
    st.lists(st.sampled_from(COMMANDS), min_size=1, max_size=2).map(" | ".join),
)


def assert_valid(parts: tuple[dict[str, Any], ...], whole: str) -> None:
    assert parts
    for part in parts:
        assert set(part) == SHAPES[part["type"]]
        needed = {"cmd", "name"} | ({"path"} if part["type"] == "read" else set())
        for name, value in part.items():
            assert isinstance(value, str) or (value is None and name not in needed)
    if any(part["type"] == "unknown" for part in parts):
        assert [part["cmd"] for part in parts] == [whole]


@pytest.mark.slow
@settings(
    max_examples=10_000 if FULL else 1_000,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(any_line)
def test_any_line_has_a_valid_description(line: str) -> None:
    parts = parsed_command(line)
    assert_valid(parts, line)
    assert parsed_command(("zsh", "-lc", line)) == parts
    if parts[0]["type"] != "unknown":
        # What is dangerous or cannot be read is never called a look.
        assert judge(line, cwd="/w", home="/h").kind < CommandClass.UNKNOWN


@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(st.one_of(st.text(max_size=8), st.sampled_from(PIECES)), max_size=6).map(tuple))
def test_any_argument_vector_has_a_valid_description(argv: tuple[str, ...]) -> None:
    wrapped = len(argv) == 3 and argv[1] == "-lc" and argv[0] == "bash"
    assert_valid(parsed_command(argv), argv[2] if wrapped else shlex.join(argv))
