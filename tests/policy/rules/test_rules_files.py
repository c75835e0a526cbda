"""Where rules are found, and how an approved prefix is appended."""

from __future__ import annotations

import os
import shlex
import threading
from pathlib import Path

import pytest

from toolrest.errors import ConfigError
from toolrest.policy.rules.book import rule_book
from toolrest.policy.rules.files import (
    allow_line,
    append_allow,
    append_line,
    load_rules,
    rules_files,
)
from toolrest.policy.rules.load import parse_rules


def folder(base: Path, **files: str) -> str:
    place = base / "rules"
    place.mkdir(parents=True)
    for name, text in files.items():
        (place / f"{name}.rules").write_text(text)
    return str(base)


def test_files_come_folder_by_folder_sorted(tmp_path: Path) -> None:
    user = folder(tmp_path / "user", b="", a="")
    project = folder(tmp_path / "project", c="")
    (tmp_path / "user" / "rules" / "notes.txt").write_text("no")
    (tmp_path / "user" / "rules" / "d.rules").mkdir()
    found = rules_files([str(tmp_path / "missing"), user, project])
    assert [os.path.basename(path) for path in found] == ["a.rules", "b.rules", "c.rules"]


def test_the_strictest_layer_wins_whatever_its_place(tmp_path: Path) -> None:
    user = folder(tmp_path / "user", a='prefix_rule(["x"], decision="forbidden")')
    project = folder(tmp_path / "project", a='prefix_rule(["x"])')
    for order in ([user, project], [project, user]):
        assert load_rules(order).check(["x"])["decision"] == "forbidden"
    assert load_rules([project]).check(["x"])["decision"] == "allow"


def test_one_broken_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    user = folder(tmp_path / "user", a='prefix_rule(["x"])', b="\nprefix_rule(")
    with pytest.raises(ConfigError, match=r"b\.rules:\d: "):
        load_rules([user])
    (tmp_path / "user" / "rules" / "b.rules").write_bytes(b"# \n\xff")
    with pytest.raises(ConfigError, match=r"b\.rules:2: the file is not UTF-8"):
        load_rules([user])


def test_appending_writes_one_line_once(tmp_path: Path) -> None:
    path = append_allow(str(tmp_path), ["uv", "run", 'py "test"'])
    assert append_allow(str(tmp_path), ["uv", "run", 'py "test"']) == path
    assert Path(path).read_text() == (
        'prefix_rule(pattern=["uv", "run", "py \\"test\\""], decision="allow")\n'
    )
    assert path == str(tmp_path / "rules" / "default.rules")
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert load_rules([str(tmp_path)]).check(["uv", "run", 'py "test"'])["decision"] == "allow"


def test_appending_starts_a_new_line(tmp_path: Path) -> None:
    base = folder(tmp_path, default="# mine, without a final newline")
    append_allow(base, ["make"])
    text = (tmp_path / "rules" / "default.rules").read_text()
    assert text.splitlines() == ["# mine, without a final newline", allow_line(["make"])]


def test_nothing_is_appended_to_a_broken_file(tmp_path: Path) -> None:
    base = folder(tmp_path, default="prefix_rule(\n")
    with pytest.raises(ConfigError, match=r"default\.rules:\d: "):
        append_allow(base, ["make"])
    assert (tmp_path / "rules" / "default.rules").read_text() == "prefix_rule(\n"


@pytest.mark.parametrize(
    "prefix",
    [
        [],
        [""],
        ["ls", "a\nb"],
        ["bash"],
        ["bash", "-lc"],
        ["/bin/sh", "-c"],
        ["Python3"],
        ["python3", "-c"],
        ["node", "-e"],
        ["sudo"],
        ["env"],
        ["git"],
        ["rm"],
        ["npm", "run"],
        ["xargs"],
    ],
)
def test_prefixes_that_allow_nearly_anything_are_refused(tmp_path: Path, prefix: list[str]) -> None:
    with pytest.raises(ConfigError):
        append_allow(str(tmp_path), prefix)
    assert not (tmp_path / "rules").exists()


OPEN = [
    "/usr/bin/python3", "python3.12", "/usr/bin/python3.11 -u", "python3 -W ignore", "bash -x",
    "bash -o pipefail", "/opt/bin/zsh -f", "sudo -n", "sudo -u root", "sudo -n bash", "env -i",
    "/usr/bin/env", "/usr/bin/env python3", "env X=1", "env X=1 sh", "busybox sh", "busybox",
    "timeout 5", "timeout 5 bash -c", "nice -n 5 python", "nohup sh", "command bash", "exec -a x",
    "xargs -0", "xargs sh", "xargs -n 1 rm", "find . -name", "parallel -j2", "ssh host", "su root",
    "ssh host bash", "git -C x", "git --no-pager", "git bisect run", "rm -rf", "node --inspect",
    "perl -w -I lib", "uv run python", "uv run -q", "poetry run bash", "npm exec", "deno run -A",
    "npx -y", "python.exe", "C:\\\\Python\\\\python.exe", "pwsh -NoProfile", "watch -n 1",
    "env -S bash", "sudo --user=root -- sh", "lua5.4", "awk -f",
]  # fmt: skip
CLOSED = [
    "make", "uv run pytest", "python3 -m pytest", "bash build.sh", "bash -x build.sh",
    "npm run test", "sudo apt-get install", "timeout 5 make", "git status", "git -C x push",
    "npx eslint", "gcc-12", "xargs wc", "ssh host uptime", "env CI=1 make", "cargo test",
    "rm build.log", "python3 setup.py",
]  # fmt: skip


@pytest.mark.parametrize("line", OPEN)
def test_the_program_is_known_however_it_is_spelled(tmp_path: Path, line: str) -> None:
    """On the tree before this nearly all of them could become a rule."""
    with pytest.raises(ConfigError):
        append_allow(str(tmp_path), shlex.split(line))
    with pytest.raises(ConfigError):
        rule_book(None, commands={line: "allow"})
    assert not (tmp_path / "rules").exists()


@pytest.mark.parametrize("line", CLOSED)
def test_a_prefix_that_names_what_it_runs_can_become_a_rule(tmp_path: Path, line: str) -> None:
    append_allow(str(tmp_path), shlex.split(line))
    assert rule_book(None, commands={line: "allow"}).rules.by_program


def test_a_link_to_an_interpreter_is_one(tmp_path: Path) -> None:
    """On the tree before this a rule went by the link's name."""
    (tmp_path / "tool").symlink_to("/usr/bin/python3")
    with pytest.raises(ConfigError):
        append_allow(str(tmp_path), [str(tmp_path / "tool")])


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    victim = tmp_path / "victim"
    victim.write_text("")
    (tmp_path / "rules" / "default.rules").symlink_to(victim)
    with pytest.raises(ConfigError, match="cannot open"):
        append_allow(str(tmp_path), ["make"])
    assert victim.read_text() == ""


def test_appending_at_the_same_time_loses_nothing(tmp_path: Path) -> None:
    def work(number: int) -> None:
        for count in range(5):
            append_allow(str(tmp_path), ["make", f"t{number}-{count}"])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = (tmp_path / "rules" / "default.rules").read_text().splitlines()
    assert len(lines) == len(set(lines)) == 20


def test_network_lines_are_rules_too(tmp_path: Path) -> None:
    line = 'network_rule(host="example.com", protocol="https", decision="deny")'
    path = tmp_path / "rules" / "default.rules"
    append_line(str(path), line)
    assert parse_rules(path.read_text()).hosts() == ((), ("example.com",))
