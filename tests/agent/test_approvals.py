"""Questions, answers and what is remembered of them, through whole sessions."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolrest import ApprovalRequest, ConfigError, Context, Effects, Tool, Toolrest, tool
from toolrest.config.loader import load
from toolrest.config.trust import trust
from toolrest.gate.approval.grants import stored_grants
from toolrest.gate.approval.request import SCOPES, Review

PATCH = "*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch"


class Asked(list[ApprovalRequest]):
    """An approver that gives one answer and keeps the questions."""

    def __init__(self, answer: Any = "approved") -> None:
        super().__init__()
        self.answer = answer

    def __call__(self, request: ApprovalRequest) -> Any:
        self.append(request)
        return self.answer


def session(
    work: Path, asked: Callable[..., Any] | str = "deny", mode: str = "untrusted", **flags: Any
) -> Toolrest:
    """A session as the command line makes one: with the user's files."""
    config = load(workspace=work, flags={"approval_policy": mode, **flags})
    return Toolrest(work, config=config, on_ask=asked)  # type: ignore[arg-type]


def patch(*names: str) -> dict[str, str]:
    body = "".join(f"*** Add File: {name}\n+x\n" for name in names)
    return {"input": f"*** Begin Patch\n{body}*** End Patch"}


def sh(line: str) -> dict[str, Any]:
    return {"cmd": line, "login": False}


async def test_the_request_says_everything(tmp_path: Path) -> None:
    asked = Asked("denied")
    async with session(tmp_path, asked) as rest:
        await rest.call("exec_command", sh("make build"))
        await rest.call("apply_patch", patch("a.txt"))
    run, write = asked
    assert run.command[-1] == "make build"
    assert run.cwd == str(tmp_path)
    assert run.rule == "command.mode.untrusted"
    assert len(run.fingerprint) == 16
    assert [choice.scope for choice in run.choices] == [
        "once",
        "session",
        "project",
        "user",
        "rule",
    ]
    assert "add " in write.diff
    assert "+x" in write.diff
    assert [choice.scope for choice in write.choices] == ["once", "session", "project", "user"]


async def test_once_is_this_call_only(tmp_path: Path) -> None:
    asked = Asked("approved")
    async with session(tmp_path, asked) as rest:
        for _ in range(2):
            await rest.call("exec_command", sh("touch x"))
    assert len(asked) == 2


@pytest.mark.parametrize("scope", ["session", "project", "user"])
async def test_what_is_shown_is_stored_is_matched(
    tmp_path: Path, toolrest_home: Path, scope: str
) -> None:
    asked = Asked(scope)
    async with session(tmp_path, asked) as rest:
        await rest.call("exec_command", sh("touch x"))
        await rest.call("exec_command", sh("touch x"))
        await rest.call("apply_patch", patch("a", "b"))
        shown = [choice for r in asked for choice in r.choices if choice.scope == scope]
        listed = rest.effective_policy()["grants"]["items"]
        assert rest.explain("exec_command", sh("touch x")).verdict == "allow"
        assert rest.explain("exec_command", sh("touch y")).verdict == "ask"
        assert rest.explain("apply_patch", patch("b")).verdict == "allow"
        assert rest.explain("apply_patch", patch("b", "c")).verdict == "ask"
    assert len(asked) == 2
    assert [g["key"] for g in listed] == [k.to_json() for c in shown for k in c.stores]
    for choice in shown:
        assert all(key.sentence() in choice.sentence for key in choice.stores)
    stored = [grant.key for grant in stored_grants(str(toolrest_home))]
    assert stored == ([] if scope == "session" else [k for c in shown for k in c.stores])


async def test_grants_outlive_the_session_only_where_they_should(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        (folder / ".git").mkdir(parents=True)
    for scope, in_project, elsewhere in (
        ("session", "ask", "ask"),
        ("project", "allow", "ask"),
        ("user", "allow", "allow"),
    ):
        line = sh(f"make {scope}")
        async with session(here, Asked(scope)) as rest:
            await rest.call("exec_command", line)
        async with session(here) as rest:
            assert rest.explain("exec_command", line).verdict == in_project
        async with session(there) as rest:
            assert rest.explain("exec_command", line).verdict == elsewhere


VARIATIONS = [
    *(
        f"uv run pytest {words}"
        for words in (
            "",
            "-q",
            "-x",
            "-v",
            "-vv",
            "tests",
            "tests/a.py",
            "tests/b.py::test_c",
            "-k 'a and b'",
            "-q tests/a.py",
            "tests/a.py -q",
            "--maxfail=1",
            "-n 4",
            "-p no:cacheprovider",
            "--lf",
            "--ff -x",
            "'tests/a b.py'",
            '"tests/c.py"',
            "tests/a.py tests/b.py",
            "-m slow",
            "--cov=src",
            "-rA",
            "--durations 5",
            "-s",
            "--pdbcls=x:y",
            "tests/*.py",
            "$T",
            "-W error",
        )
    ),
    "cd sub && uv run pytest",
    "cd sub && uv run pytest -q",
    "(cd sub && uv run pytest)",
    "NO_COLOR=1 uv run pytest",
    "CI=1 uv run pytest -q",
    "PYTHONUNBUFFERED=1 uv run pytest",
    "LC_ALL=C uv run pytest tests",
    "uv run pytest | head",
    "uv run pytest | head -20",
    "uv run pytest 2>&1 | tail -5",
    "uv run pytest -q 2>/dev/null",
    "uv run pytest -q >/dev/null 2>&1",
    "! uv run pytest",
    "uv run pytest | grep FAILED | sort",
    "timeout 60 uv run pytest",
    "time uv run pytest -q",
    "nice uv run pytest",
    "uv run pytest && echo ok",
    "uv run pytest || echo failed",
    "ls && uv run pytest",
    "bash -c 'uv run pytest -q'",
    "uv run pytest; echo done",
    "true && uv run pytest -x | wc -l",
]
OTHERS = [
    "uv run python x.py",
    "uv run",
    "uv sync",
    "uv run pytests",
    "uv run --with evil pytest",
    "uv run -- pytest",
    "pytest",
    "python -m pytest",
    "uv run pytest; make",
    "uv run pytest && curl https://a.io",
    "uv run pytest $(make)",
    "uv run pytest `make`",
    "uv run pytest <(make)",
    "uv run pytest | sh",
    "uv run pytest | tee /etc/x",
    "uv run pytest > out.txt",
    "uv run pytest > /etc/passwd",
    "uv run pytest > $X",
    "LD_PRELOAD=./x.so uv run pytest",
    "PATH=. uv run pytest",
    "PYTEST_ADDOPTS=-pevil uv run pytest",
    "X=$(make) uv run pytest",
    "env A=1 uv run pytest",
    "sudo uv run pytest",
    "./uv run pytest",
    "/tmp/uv run pytest",
    "$UV run pytest",
    "uv $X pytest",
    "u* run pytest",
    "cd / && uv run pytest",
    "cd .. && uv run pytest",
    "cd $X && uv run pytest",
    "xargs uv run pytest < list",
    "rm -rf / ; uv run pytest",
    "eval 'uv run pytest'",
    "uv run pytest &",
    "function uv() { make; }; uv run pytest",
    "alias uv=make; uv run pytest",
]


async def test_a_grant_for_uv_run_pytest_covers_its_variations_and_nothing_else(
    tmp_path: Path,
) -> None:
    (tmp_path / "sub").mkdir()
    asked = Asked("session")
    async with session(tmp_path, asked) as rest:
        await rest.call("exec_command", sh("uv run pytest tests/first.py"))
        assert len(VARIATIONS) >= 50
        assert [
            v for v in VARIATIONS if rest.explain("exec_command", sh(v)).verdict != "allow"
        ] == []
        assert [o for o in OTHERS if rest.explain("exec_command", sh(o)).verdict == "allow"] == []
        elsewhere = {**sh("uv run pytest"), "workdir": "/usr"}
        assert rest.explain("exec_command", elsewhere).verdict == "ask"
        # The same yes counts for the other tools that run commands.
        assert rest.explain("shell", {"command": ["uv", "run", "pytest", "-q"]}).verdict == "allow"
    assert len(asked) == 1


async def test_a_yes_inside_the_sandbox_is_none_to_leaving_it(tmp_path: Path) -> None:
    outside = {**sh("make x"), "sandbox_permissions": "require_escalated", "justification": "?"}
    async with session(tmp_path, Asked("session"), "on-request") as rest:
        await rest.call("exec_command", outside)
        assert rest.explain("exec_command", outside).leaves
        assert rest.explain("exec_command", outside).verdict == "allow"
        other = {**outside, "cmd": "make y"}
        assert rest.explain("exec_command", other).verdict == "ask"


async def test_dangerous_and_unreadable_commands_are_never_remembered(tmp_path: Path) -> None:
    asked = Asked("session")
    async with session(tmp_path, asked, "untrusted") as rest:
        for line in ("git push --force", "$X y", "make > $Y", "rm -rf $HOME/*"):
            explained = rest.explain("exec_command", sh(line))
            assert [choice.scope for choice in explained.choices] == ["once"], line


@pytest.mark.parametrize(
    ("mode", "name", "arguments", "scopes"),
    [
        ("strict", "apply_patch", patch("a"), ["once"]),
        ("strict", "exec_command", sh("make"), ["once"]),
        ("auto", "apply_patch", patch("a"), ["once", "session"]),
        ("auto", "exec_command", sh("make x"), ["once"]),
    ],
)
async def test_how_far_a_yes_may_reach_in_memo_codes_modes(
    tmp_path: Path, mode: str, name: str, arguments: dict[str, Any], scopes: list[str]
) -> None:
    async with session(tmp_path, mode=mode) as rest:
        explained = rest.explain(name, arguments)
        assert explained.verdict == "ask"
        assert [choice.scope for choice in explained.choices] == scopes


async def test_strict_asks_again_whatever_was_granted(tmp_path: Path) -> None:
    async with session(tmp_path, Asked("user")) as rest:
        await rest.call("apply_patch", patch("a"))
    async with session(tmp_path, mode="strict") as rest:
        assert rest.explain("apply_patch", patch("a")).verdict == "ask"


async def test_auto_asks_about_running_whatever_was_granted_elsewhere(tmp_path: Path) -> None:
    async with session(tmp_path, Asked("user")) as rest:
        await rest.call("exec_command", sh("touch x"))
        await rest.call("apply_patch", patch("a"))
    async with session(tmp_path, mode="untrusted") as rest:
        assert rest.explain("exec_command", sh("touch x")).verdict == "allow"
    async with session(tmp_path, mode="auto") as rest:
        assert rest.explain("exec_command", sh("touch x")).verdict == "ask"
        assert rest.explain("apply_patch", patch("a")).verdict == "allow"


@pytest.mark.usefixtures("any_sandbox")
async def test_an_answer_that_was_not_offered_counts_once(tmp_path: Path) -> None:
    asked = Asked("approved_for_user")
    async with Toolrest(tmp_path, approval_policy="auto", on_ask=asked) as rest:
        for _ in range(2):
            output = await rest.call("exec_command", sh("touch x"))
            assert output.failure is None
    assert len(asked) == 2


@pytest.mark.usefixtures("any_sandbox")
async def test_a_yes_with_a_rule_is_written_and_in_force_at_once(
    tmp_path: Path, toolrest_home: Path
) -> None:
    asked = Asked("approved_with_rule")
    async with session(tmp_path, asked) as rest:
        output = await rest.call("exec_command", sh("make build"))
        assert '[toolrest] Approved command prefix saved: ["make", "build"]' in output.text
        explained = rest.explain("exec_command", sh("make build -j4"))
        assert (explained.verdict, explained.leaves) == ("allow", False)
    rules = (toolrest_home / "rules" / "default.rules").read_text()
    assert rules == 'prefix_rule(pattern=["make", "build"], decision="allow")\n'
    async with session(tmp_path) as rest:
        assert rest.explain("exec_command", sh("make build")).verdict == "allow"
    assert len(asked) == 1


@pytest.mark.needs("sandbox")
async def test_a_rule_from_a_question_about_leaving_says_outside(
    tmp_path: Path, toolrest_home: Path
) -> None:
    """Fails on trees in which every saved rule meant outside."""
    asked = Asked("approved_with_rule")
    leaving = {"cmd": "make --version", "sandbox_permissions": "require_escalated"}
    async with session(tmp_path, asked, mode="on-request") as rest:
        await rest.call("exec_command", leaving)
        (choice,) = (choice for choice in asked[0].choices if choice.scope == "rule")
        assert "also outside the sandbox" in choice.sentence
        explained = rest.explain("exec_command", leaving)
        assert (explained.verdict, explained.leaves) == ("allow", True)
    rules = (toolrest_home / "rules" / "default.rules").read_text()
    line = 'prefix_rule(pattern=["make", "--version"], decision="allow", outside=True)\n'
    assert rules == line


async def test_no_rule_is_offered_for_commands_whose_next_word_is_one_more_file(
    tmp_path: Path,
) -> None:
    async with session(tmp_path) as rest:
        for line in ("touch x", "rm x", "cp a b", "tee x"):
            choices = rest.explain("exec_command", sh(line)).choices
            assert "rule" not in [choice.scope for choice in choices], line


async def test_a_denial_with_a_reason_reaches_the_model(tmp_path: Path) -> None:
    async with session(tmp_path, Asked(Review("denied", "use the Makefile"))) as rest:
        output = await rest.call("exec_command", sh("touch x"))
    assert output.failure is not None
    assert output.failure.kind == "approval_denied"
    assert "use the Makefile" in output.text


async def test_what_holds_a_secret_is_not_offered_for_keeping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "hunter2-hunter2")
    asked = Asked("session")
    async with session(tmp_path, asked) as rest:
        await rest.call("exec_command", sh("make TOKEN=hunter2-hunter2"))
    assert [choice.scope for choice in asked[0].choices] == ["once"]
    assert "hunter2" not in repr(asked[0].command)


async def test_a_store_that_cannot_be_written_does_not_lose_the_answer(
    tmp_path: Path, toolrest_home: Path
) -> None:
    (toolrest_home / "grants.json").write_text("broken")
    seen: list[Any] = []
    async with session(tmp_path, Asked("user")) as rest:
        rest.subscribe(seen.append)
        output = await rest.call("apply_patch", patch("a"))
    assert output.failure is None
    reasons = [event.reason for event in seen if event.type == "tool_call_decision"]
    assert any("counts for this call only" in reason for reason in reasons)


# Rules


async def test_rules_of_the_user_and_of_a_trusted_project(
    tmp_path: Path, toolrest_home: Path
) -> None:
    (tmp_path / ".git").mkdir()
    own, theirs = toolrest_home / "rules", tmp_path / ".toolrest" / "rules"
    for folder in (own, theirs):
        folder.mkdir(parents=True)
    (own / "a.rules").write_text('prefix_rule(["make"], decision="allow")')
    (theirs / "p.rules").write_text(
        'prefix_rule(["make", "deploy"], decision="forbidden", justification="ask Ann")\n'
        'prefix_rule(["npm"], decision="allow")\n'
    )
    async with session(tmp_path) as rest:
        assert rest.explain("exec_command", sh("make deploy")).verdict == "allow"
        assert any("rules is ignored" in w for w in rest.config.warnings)
    trust(tmp_path)
    async with session(tmp_path) as rest:
        denied = rest.explain("exec_command", sh("make deploy"))
        assert (denied.verdict, denied.rule) == ("deny", "command.rule")
        assert "ask Ann" in denied.reason
        assert rest.explain("exec_command", sh("make x")).verdict == "allow"
        # A project can only tighten.
        assert rest.explain("exec_command", sh("npm t")).verdict == "ask"
        rules = rest.effective_policy()["rules"]
        assert len(rules["files"]) == 2
        assert "1 of its rules would allow" in rules["warnings"][0]
        output = await rest.call("exec_command", sh("ls; make deploy"))
        assert output.failure is not None
        assert output.failure.kind == "policy_denied"


def test_a_broken_rules_file_is_an_error_that_names_it(tmp_path: Path, toolrest_home: Path) -> None:
    (toolrest_home / "rules").mkdir()
    (toolrest_home / "rules" / "x.rules").write_text('\nprefix_rule(["a"], decision="maybe")')
    with pytest.raises(ConfigError, match=r"x\.rules:2"):
        session(tmp_path)


def test_a_projects_rules_may_not_be_a_link(tmp_path: Path, toolrest_home: Path) -> None:
    work = tmp_path / "w"
    folder = work / ".toolrest" / "rules"
    folder.mkdir(parents=True)
    (tmp_path / "real.rules").write_text("")
    (folder / "x.rules").symlink_to(tmp_path / "real.rules")
    trust(work)
    with pytest.raises(ConfigError, match="symlink"):
        session(work)


async def test_rules_in_the_settings_only_tighten(tmp_path: Path) -> None:
    row = {"pattern": [{"token": "make"}, {"any_of": ["x", "y"]}], "decision": "forbidden"}
    rest = Toolrest(tmp_path, settings={"rules.prefix_rules": [row]})
    assert rest.explain("exec_command", sh("make y z")).verdict == "deny"
    assert rest.explain("exec_command", sh("make z")).verdict == "allow"
    with pytest.raises(ConfigError, match="decision"):
        Toolrest(tmp_path, settings={"rules.prefix_rules": [{**row, "decision": "allow"}]})


@pytest.mark.slow
@pytest.mark.needs("namespaces")
async def test_network_rules_open_and_close_hosts_for_commands(
    tmp_path: Path, toolrest_home: Path
) -> None:
    served = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        served += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    line = sh(
        'NO_PROXY= no_proxy= python3 -c "import urllib.request as u;'
        f"print(u.urlopen('http://127.0.0.1:{port}/', timeout=60).read())\""
    )
    rules = toolrest_home / "rules"
    rules.mkdir()
    allow, deny = (
        f'network_rule(host="127.0.0.1", protocol="http", decision="{say}")\n'
        for say in ("allow", "deny")
    )
    try:
        wider = {"tool_security": {"allowed_network_domains": ["127.0.0.0/8"]}}
        nothing: dict[str, Any] = {}
        for text, reached, flags in (
            ("", False, nothing),
            (allow, True, nothing),
            ("", True, wider),
            (deny, False, wider),
        ):
            (rules / "net.rules").write_text(text)
            served = 0
            async with session(tmp_path, "deny", "never", **flags) as rest:
                output = await rest.call("exec_command", line)
            assert (served > 0, "hello" in output.text) == (reached, reached), output.text
    finally:
        server.close()
    with pytest.raises(ConfigError, match="network_access"):
        session(tmp_path, sandbox_workspace_write={"network_access": True})


# Overrides


def with_override(work: Path, table: str, name: str, say: str, **more: Any) -> Toolrest:
    return Toolrest(work, settings={"approvals": {table: {name: say}}, **more})


async def test_overrides_for_single_tools(tmp_path: Path) -> None:
    args = patch("a")
    for say, mode, verdict in (
        ("deny", "never", "deny"),
        ("deny", "dangerous", "deny"),
        ("ask", "on-request", "ask"),
        ("ask", "never", "deny"),
        ("allow", "untrusted", "allow"),
        ("allow", "strict", "allow"),
    ):
        rest = with_override(tmp_path, "tools", "apply_*", say, approval_policy=mode)
        explained = rest.explain("apply_patch", args)
        assert explained.verdict == verdict, (say, mode)
        assert explained.rule == 'approvals.tools."apply_*"'
        assert rest.explain("list_dir", {"dir_path": "."}).rule != explained.rule


async def test_an_override_lifts_no_border(tmp_path: Path) -> None:
    rest = with_override(tmp_path, "tools", "exec_command", "allow", approval_policy="untrusted")
    assert rest.explain("exec_command", sh("make")).verdict == "allow"
    for line in ("touch /etc/x", "git push --force", "$X"):
        assert rest.explain("exec_command", sh(line)).verdict == "ask", line
    hidden = with_override(tmp_path, "tools", "*", "allow")
    assert hidden.explain("read_file", {"file_path": "~/.ssh/id_rsa"}).verdict != "ask"
    denied = hidden.explain("read_file", {"file_path": os.path.expanduser("~/.ssh/id_rsa")})
    assert denied.verdict == "deny"


async def test_overrides_for_folders(tmp_path: Path) -> None:
    rest = with_override(tmp_path, "paths", "docs", "ask")
    assert rest.explain("apply_patch", patch("docs/a")).verdict == "ask"
    assert rest.explain("apply_patch", patch("b", "docs/a")).verdict == "ask"
    assert rest.explain("apply_patch", patch("docs-b")).verdict == "allow"
    rest = with_override(tmp_path, "paths", "docs", "allow", approval_policy="untrusted")
    assert rest.explain("apply_patch", patch("docs/a")).verdict == "allow"
    assert rest.explain("apply_patch", patch("docs/a", "b")).verdict == "ask"


@pytest.mark.needs("namespaces")
async def test_a_denied_folder_is_closed_to_tools_and_programs(tmp_path: Path) -> None:
    (tmp_path / "vendor").mkdir()
    async with with_override(tmp_path, "paths", "vendor", "deny", approval_policy="never") as rest:
        written = await rest.call("apply_patch", patch("vendor/a"))
        assert written.failure is not None
        await rest.call("exec_command", sh("touch vendor/b; python3 -c \"open('vendor/c','w')\""))
        await rest.call("exec_command", sh("touch free"))
    assert os.listdir(tmp_path / "vendor") == []
    assert (tmp_path / "free").exists()


async def test_overrides_for_beginnings_of_commands(tmp_path: Path) -> None:
    rest = with_override(tmp_path, "commands", "git push", "deny", approval_policy="never")
    assert rest.explain("exec_command", sh("ls; git push origin")).verdict == "deny"
    rest = with_override(tmp_path, "commands", "make test", "allow", approval_policy="untrusted")
    assert rest.explain("exec_command", sh("make test -j2")).verdict == "allow"
    assert rest.explain("exec_command", sh("make")).verdict == "ask"
    for name in ("bash -c", "", "'x"):
        with pytest.raises(ConfigError, match=r"approvals\.commands"):
            with_override(tmp_path, "commands", name, "allow")


async def test_overrides_for_mcp_servers(tmp_path: Path) -> None:
    class Remote(Tool):
        name = "mcp__gh__get"
        mcp = ("gh", "get")
        typical = Effects(calls=("gh/get",))

    for say, verdict in (("deny", "deny"), ("ask", "ask"), ("allow", "allow")):
        rest = with_override(tmp_path, "mcp_servers", "gh", say)
        rest.add_tool(Remote())
        assert rest.explain("mcp__gh__get").verdict == verdict


async def test_a_yes_to_another_servers_tool_ends_when_the_tool_changes(tmp_path: Path) -> None:
    class Remote(Tool):
        name = "mcp__gh__get"
        mcp = ("gh", "get")
        typical = Effects(calls=("mcp__gh__get",))
        pin = "one"

        async def run(self, args: Any, ctx: Any) -> str:
            return "got"

    asked, remote = Asked("session"), Remote()
    async with Toolrest(tmp_path, tools=[remote], on_ask=asked) as rest:
        for _ in range(2):
            await rest.call("mcp__gh__get", {})
        assert len(asked) == 1
        assert asked[0].choices[1].stores[0].words == ("mcp__gh__get", "one")
        remote.pin = "two"
        assert rest.explain("mcp__gh__get").verdict == "ask"


def test_a_trusted_project_may_tighten_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / ".toolrest" / "config.toml"
    file.parent.mkdir()
    trust(tmp_path)
    file.write_text('[approvals.tools]\nexec_command = "ask"\n[approvals.paths]\ndocs = "deny"\n')
    assert load(workspace=tmp_path).value.approvals.tools == {"exec_command": "ask"}
    for table in ("tools", "paths", "commands", "mcp_servers"):
        file.write_text(f'[approvals.{table}]\nx = "allow"\n')
        with pytest.raises(ConfigError, match="may not set approvals"):
            load(workspace=tmp_path)


def test_a_denial_counts_from_any_layer(tmp_path: Path, toolrest_home: Path) -> None:
    (toolrest_home / "config.toml").write_text('[approvals.tools]\nx = "deny"\ny = "ask"\n')
    config = load(
        workspace=tmp_path, overrides=["approvals.tools.x=allow", "approvals.tools.y=allow"]
    )
    assert config.value.approvals.tools == {"x": "deny", "y": "allow"}
    assert any("does not take back" in warning for warning in config.warnings)


# Tools that declare nothing


async def test_a_name_that_only_reads_is_asked_about_once(tmp_path: Path) -> None:
    @tool
    def get_weather(town: str) -> str:
        """Look it up."""
        return town

    @tool
    def send_mail(to: str) -> str:
        """Send it."""
        return to

    asked = Asked()
    async with Toolrest(tmp_path, tools=[], on_ask=asked) as rest:
        for found in (get_weather, send_mail):  # as those of a home's files
            rest.add_tool(found, approved=False)
        assert (
            "any call of the tool" in rest.explain("get_weather", {"town": "a"}).choices[0].sentence
        )
        for town in ("a", "b", "c"):
            await rest.call("get_weather", {"town": town})
        assert len(asked) == 1
        assert asked[0].risk.label == "read"
        for to in ("a", "b"):
            await rest.call("send_mail", {"to": to})
        assert [request.risk.label for request in asked[1:]] == ["execute", "execute"]
    risks = {row["name"]: row["risk"] for row in rest.table()}
    assert (risks["get_weather"], risks["send_mail"]) == ("read", "execute")


async def test_a_session_yes_to_an_undeclared_tool_is_for_that_very_call(tmp_path: Path) -> None:
    @tool
    def update_ticket(number: int) -> str:
        """Change it."""
        return str(number)

    asked = Asked("session")
    for mode in ("auto", "on-request"):
        asked.clear()
        async with Toolrest(tmp_path, tools=[], on_ask=asked, approval_policy=mode) as rest:
            rest.add_tool(update_ticket, approved=False)
            for number in (1, 1, 2):
                await rest.call("update_ticket", {"number": number})
        assert len(asked) == 2
        assert asked[0].risk.label == "write"


async def test_words_never_lower_what_is_declared(tmp_path: Path) -> None:
    @tool(mutating=True)
    def get_and_delete(x: str) -> str:
        """Gone."""
        return x

    @tool(effects=Effects.unknown())
    def read_thing(x: str) -> str:
        """Who knows."""
        return x

    @tool(risk="critical")
    def get_critical(x: str) -> str:
        """Grave."""
        return x

    rest = Toolrest(tmp_path, tools=[get_and_delete, read_thing, get_critical])
    risks = {row["name"]: row["risk"] for row in rest.table()}
    assert risks["get_and_delete"] == risks["read_thing"] == "execute"
    assert risks["get_critical"] == "critical"


# The second question


@pytest.mark.slow
@pytest.mark.needs("sandbox")
async def test_the_second_try_is_not_asked_about_when_the_first_question_said_so(
    tmp_path: Path,
) -> None:
    target = Path.home() / f".toolrest-test-second-{os.getpid()}"
    program = f"open({str(target)!r}, 'w')"
    line = sh(f'python3 -c "{program}"')
    try:
        for answer, questions in (("approved", 1), ("session", 2)):
            asked = Asked(answer)
            async with session(tmp_path, asked) as rest:
                await rest.call("exec_command", line)
            assert len(asked) == questions
            assert "once more outside" in asked[0].choices[0].sentence
            assert target.exists()
            target.unlink()
        assert asked[1].retry_reason == "command failed; retry without sandbox?"
        assert asked[1].leaves
        # The yes was for that call: the next one, in another session, is asked about again.
        asked = Asked("denied")
        async with session(tmp_path, asked) as rest:
            await rest.call("exec_command", line)
        assert len(asked) == 1
    finally:
        target.unlink(missing_ok=True)


@pytest.mark.needs("sandbox")
async def test_a_session_grant_does_not_reach_the_second_try(tmp_path: Path) -> None:
    target = Path.home() / f".toolrest-test-grant-{os.getpid()}"
    line = sh(f"python3 -c \"open({str(target)!r}, 'w')\"")
    answers = iter(["session", "denied", "denied"])
    asked: list[ApprovalRequest] = []

    def approver(request: ApprovalRequest) -> str:
        asked.append(request)
        return next(answers)

    async with session(tmp_path, approver) as rest:
        for _ in range(2):
            output = await rest.call("exec_command", line)
            assert output.failure is not None
            assert output.failure.kind == "approval_denied"
    assert [request.retry_reason is None for request in asked] == [True, False, False]
    assert not target.exists()


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("mode", ["on-request", "never", "on-failure"])
async def test_only_where_a_model_may_ask_to_leave_is_it_told_how(
    tmp_path: Path, mode: str
) -> None:
    target = Path.home() / f".toolrest-test-advice-{os.getpid()}"
    line = sh(f"python3 -c \"open({str(target)!r}, 'w')\"")
    async with session(tmp_path, mode=mode) as rest:
        output = await rest.call("exec_command", line)
    assert output.failure is not None
    assert output.failure.kind == "sandbox_denied"
    assert ("require_escalated" in output.text) == (mode == "on-request")


@pytest.mark.parametrize("mode", ["never", "dangerous"])
async def test_where_nobody_is_asked_a_tools_own_question_is_a_no(
    tmp_path: Path, mode: str
) -> None:
    @tool(mutating=False)
    async def curious(ctx: Context) -> str:
        """Ask."""
        return str(await ctx.ask("May I?"))

    asked = Asked()
    async with Toolrest(tmp_path, tools=[curious], on_ask=asked, approval_policy=mode) as rest:
        assert (await rest.call("curious")).text == "False"
    assert asked == []


def test_scopes_have_answers() -> None:
    assert json.loads(json.dumps(list(SCOPES))) == ["once", "session", "project", "user", "rule"]


# A new repository


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize(
    ("command", "asks"),
    [
        ("git init", True),
        ("git init -q -b main . && git add .", True),
        ("git -C . init", True),
        ("mkdir .git", True),
        ("git init below", False),
        ("git init --bare .", False),
    ],
)
async def test_a_repository_is_made_only_after_a_yes(
    tmp_path: Path, command: str, asks: bool
) -> None:
    asked = Asked()
    async with session(tmp_path, asked, "on-request", sandbox_mode="workspace-write") as rest:
        output = await rest.call("exec_command", {"cmd": command})
        assert [request.leaves for request in asked] == [True] * asks
        assert output.success
        if asks:
            assert (tmp_path / ".git").is_dir()
            assert rest.explain("exec_command", {"cmd": command}).verdict == "allow"
