"""Ordinary work goes on inside: interpreters, servers, databases, debuggers, package managers."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any, Protocol

import pytest


class Person(Protocol):
    name: str
    place: Path
    workspace: Path

    def do(self, line: str, cwd: Path | None = None) -> str: ...
    def confined(self, *lines: str, **wish: Any) -> list[Any]: ...


SERVER = """
import http.server, threading, urllib.request
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/page").read().decode())
"""
POOL = """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.Pool(3) as pool:
        print(sum(pool.map(abs, range(-10, 0))))
"""
DATABASE = """
import sqlite3
with sqlite3.connect("data.db") as db:
    db.execute("create table t (x)"); db.execute("insert into t values (7)")
    print(db.execute("select x from t").fetchall())
"""
TEST = """
import unittest
class T(unittest.TestCase):
    def test(self): self.assertEqual(1, 1)
"""
PACKAGE = '{"name": "x", "version": "1.0.0", "scripts": {"test": "node -e 0"}}'


@pytest.mark.slow
def test_python(person: Person, python: str) -> None:
    for name, text in (
        ("server.py", SERVER),
        ("pool.py", POOL),
        ("data.py", DATABASE),
        ("test_it.py", TEST),
        ("page", "served"),
    ):
        person.do(f"cat > {name} <<'END'\n{text}\nEND", person.workspace)
    lines = (
        f"{shlex.quote(python)} -I server.py",
        f"{shlex.quote(python)} -I pool.py",
        f"{shlex.quote(python)} -I data.py",
        f"{shlex.quote(python)} -m unittest -q test_it",
        f"{shlex.quote(python)} -c 'import tempfile; tempfile.NamedTemporaryFile().write(b\"x\")'",
        f"{shlex.quote(python)} -c 'import asyncio; asyncio.run(asyncio.sleep(0.01))'",
    )
    results = person.confined(*lines)
    assert [result.code for result in results] == [0] * len(lines), results
    assert results[0].text.strip().endswith("served")
    assert results[1].text == "55\n"
    assert results[2].text == "[(7,)]\n"


def test_shells(person: Person) -> None:
    lines = (
        "cat <<END\nhere\nEND",
        "bash -c 'diff <(echo a) <(echo a) && cat <<< string'",
        "yes | head -n 100000 | sort | uniq -c | wc -l",
        "set -e; mkdir -p a/b; echo 1 > a/b/c; tar cf t.tar a; rm -r a; tar xf t.tar; cat a/b/c",
        "f=$(mktemp); echo x > $f; cat $f; sleep 0.01 & wait",
        "ls -la / > /dev/null && df . > /dev/null && id && ps -e > /dev/null",
        "(exit 3); test $? = 3 && kill -0 $$ && nice -n 5 true && ulimit -n > /dev/null",
        "ln -s a link && readlink link && mkfifo p && (echo in > p & cat p)",
        "date; hostname; uname -a; locale > /dev/null; find . -name t.tar",
    )
    results = person.confined(*lines)
    assert [result.code for result in results] == [0] * len(lines), results


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_npm(person: Person, backend: str) -> None:
    npm = shutil.which("npm", path="/usr/bin:/usr/local/bin")
    if npm is None:
        return  # nothing to show on a machine without it
    person.do(
        f"echo '{PACKAGE}' > package.json; mkdir -p ../home; echo a=b > ../home/.npmrc",
        person.workspace,
    )
    (result,) = person.confined(
        f"{npm} test",
        backend=backend,
        cache_dir=str(person.place / "cache"),
        hidden=[str(person.place / "home/.npmrc")],
    )
    assert result.code == 0, result.text


def test_debuggers(person: Person) -> None:
    strace = shutil.which("strace", path="/usr/bin:/bin")
    if strace is None:
        return  # nothing to show on a machine without it
    (result,) = person.confined(f"{strace} -f -o log true && grep -q exit_group log")
    assert result.code == 0, result.text


def test_exit_codes_and_signals_come_through(person: Person) -> None:
    results = person.confined("exit 7", "kill -TERM $$", "kill -KILL $$", "no-such-program-here")
    assert [result.code for result in results] == [7, 143, 137, 127]


def test_landlock_runs_ordinary_work_too(person: Person, python: str) -> None:
    lines = (
        "echo x > f && cat f && mkdir d && mv f d && rm -r d",
        "cat <<END\nhere\nEND",
        f"{shlex.quote(python)} -c 'import asyncio; asyncio.run(asyncio.sleep(0.01))'",
        f"{shlex.quote(python)} -c 'import tempfile; tempfile.NamedTemporaryFile().write(b\"x\")'",
        "yes | head -n 1000 | sort | uniq -c",
        "git init -q . && touch a && git add a && git commit -qm 1",
    )
    results = person.confined(*lines, backend="landlock")
    assert [result.code for result in results] == [0] * len(lines), results
