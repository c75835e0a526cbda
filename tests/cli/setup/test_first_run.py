"""The first run: a key is enough, `setup` asks for the rest, `doctor` says what is missing."""

from __future__ import annotations

import json
import os
import signal
import stat
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.chat.test_approvals import quiet
from tests.forked import TOOLREST
from tests.screen import Screen

from toolrest.cli.setup.sandbox_checks import sandbox_verdict
from toolrest.config.loader import load
from toolrest.config.trust import trust_of
from toolrest.errors import ConfigError
from toolrest.sandbox.weak import WEAK_FACTS
from toolrest.secret import Secret
from toolrest.testing import Fail, Say
from toolrest.testing.server import ScriptedServer
from toolrest.wire.model_data import newest_general
from toolrest.wire.model_facts import default_model
from toolrest.wire.presets import BUILT_IN
from toolrest.wire.providers import with_default_model
from toolrest.wire.stored_keys import store_key, stored_keys

KEY = "sk-a-key-that-was-typed-1"
NEWEST = newest_general("openai", "gpt-")


@pytest.fixture
def openai(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    """OpenAI, as far as anything here can tell."""
    for row in BUILT_IN.values():
        monkeypatch.delenv(row.env_key or "", raising=False)
    with ScriptedServer(["ready", "ready", "ready"], models=("gpt-5.5", "gpt-6")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield server


def test_a_key_is_all_that_exec_needs(desk: Any, openai: ScriptedServer) -> None:
    ran = desk.run("exec", "hello", env={"OPENAI_API_KEY": KEY})
    assert (ran.code, ran.out) == (0, "ready\n"), ran.err
    assert openai.requests[-1].body["model"] == NEWEST
    ran = desk.run("exec", "hello")
    assert ran.code == 2
    assert "OPENAI_API_KEY" in ran.err
    assert "toolrest setup" in ran.err


@pytest.mark.parametrize("name", [name for name, row in BUILT_IN.items() if row.line])
def test_every_provider_with_a_key_has_a_default_model(toolrest_home: Path, name: str) -> None:
    config = load(workspace=".", surface="cli")
    env = {BUILT_IN[name].env_key or "": "k"}
    found = with_default_model(config, env).value
    assert (found.model_provider, found.model) == (name, default_model(config, name))
    store_key(config.home, name, KEY)
    assert with_default_model(config, {}).value.model_provider == name


def test_a_chosen_model_is_kept(toolrest_home: Path) -> None:
    config = load(workspace=".", flags={"model": "mine"}, surface="cli")
    assert with_default_model(config, {"ANTHROPIC_API_KEY": "k"}) is config


@pytest.mark.slow
def test_setup_asks_stores_and_checks(desk: Any, openai: ScriptedServer) -> None:
    with Screen([TOOLREST, "setup"], cwd=desk.workspace, size=(40, 200)) as screen:
        screen.sees("1. OpenAI", "Provider [1]:")
        screen.types("\n")
        screen.sees("Key (not shown):")
        screen.types(f"{KEY}\n")
        screen.sees("which only you can read", "gpt-6", "Model [gpt-5.5]:")
        screen.types("gpt-6\n")
        screen.sees("it answers", "Answer [1]:")
        screen.types("y\n")
        screen.sees("Ready.")
        assert screen.ends() == 0
        assert KEY not in screen.text
        (line,) = (row for row in screen.rows if row.startswith("sandbox: "))
    works = "none works here" not in line
    assert works == (desk.run("doctor").code == 0), line
    assert "works" in line or WEAK_FACTS in line or "are refused" in line
    assert stored_keys(str(desk.home)) == {"openai": Secret(KEY)}
    assert stat.S_IMODE(os.stat(desk.home / "keys.json").st_mode) == 0o600
    assert openai.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    assert trust_of(desk.workspace) == "trusted"
    ran = desk.run("exec", "--json", "hello")
    assert ran.code == 0, ran.err
    assert openai.requests[-1].body["model"] == "gpt-6"
    assert openai.requests[-1].headers["authorization"] == f"Bearer {KEY}"


def test_the_line_on_the_sandbox_says_what_is_and_what_is_not(toolrest_home: Path) -> None:
    def line(**flags: str) -> str:
        return sandbox_verdict(load(workspace=".", flags=flags, surface="cli")).text

    assert line(sandbox_mode="danger-full-access").startswith("none, by your settings")
    assert line(**{"sandbox_policy": "chroot", "sandbox.rootfs": "/nowhere"}) == (
        "none works here, so commands are refused (sandbox.chroot: /nowhere is not a "
        "folder with a root file system)"
    )
    assert line().startswith(("bubblewrap (", WEAK_FACTS, "none works here"))


def test_setup_says_what_does_not_work_and_goes_on(
    desk: Any, openai: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedServer([Fail(404, "model_not_found", "no such model"), Say("ready")]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        with Screen([TOOLREST, "setup"], cwd=desk.workspace, size=(40, 200)) as screen:
            screen.sees("(key in OPENAI_API_KEY)", "Provider [1]:")
            screen.types("openai\n")
            screen.sees("Model [scripted]:")
            screen.types("\n")
            screen.sees("it does not answer", "Try again")
            screen.types("n\n")
            assert screen.ends() == 130
    assert not (desk.home / "config.toml").exists(), "nothing that fails is stored"


@pytest.mark.slow
def test_setup_asks_for_the_address_of_ones_own_server(
    desk: Any, openai: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedServer(["ready", "ready"], models=("tiny",)) as server:
        with Screen([TOOLREST, "setup"], cwd=desk.workspace, size=(40, 200)) as screen:
            screen.sees("llama.cpp (no key)", "Provider [1]:")
            screen.types("llamacpp\n")
            screen.sees("--jinja", "Address [http://localhost:8080/v1]:")
            screen.types("elsewhere\n")
            screen.sees("begins with http://")
            screen.types(f"{server.url.removesuffix('/v1')}\n")
            screen.sees("Model [tiny]:")
            screen.types("\n")
            screen.sees("it answers", "Answer [1]:")
            screen.types("y\n")
            screen.sees("Ready.")
            assert screen.ends() == 0
        ran = desk.run("exec", "hello")
    assert (ran.code, ran.out) == (0, "ready\n"), ran.err
    assert server.url in (desk.home / "config.toml").read_text()
    assert server.requests[-1].path.endswith("/chat/completions")


@pytest.mark.long
def test_setup_asks_for_a_part_of_an_address(
    desk: Any, openai: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails, is tried again, and what was typed then is what is stored."""
    for name in ("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with ScriptedServer(["ready"], models=("mine",)) as server:  # noqa: SIM117
        with Screen([TOOLREST, "setup"], cwd=desk.workspace, size=(40, 200)) as screen:
            screen.sees("Azure OpenAI", "Provider [1]:")
            screen.types("azure\n")
            screen.sees("the name of your deployment", "AZURE_OPENAI_ENDPOINT (part of")
            screen.types("nowhere\n")
            screen.sees("No address: nowhere/openai/v1")
            screen.types("http://127.0.0.1:9\n")
            screen.sees("Key (not shown):")
            screen.types(f"{KEY}\n")
            screen.sees("Cannot list models: no connection to 127.0.0.1", "Model:")
            screen.types("mine\n")
            screen.sees(
                "it does not answer", "Keep the key and this model anyway, unchecked? [y/N]"
            )
            screen.types("\n")
            screen.sees("Try again")
            screen.types("y\n")
            screen.until(lambda: screen.text.count("Provider [1]:") == 2)
            screen.types("azure\n")
            screen.until(lambda: screen.text.count("AZURE_OPENAI_ENDPOINT (part of") == 3)
            screen.types(f"{server.url.removesuffix('/v1')}\n")
            screen.sees("Model [mine]:")
            screen.types("\n")
            screen.sees("it answers", "Answer [1]:")
            screen.types("y\n")
            screen.sees("Ready.")
            assert screen.ends() == 0
    place = f"{server.url.removesuffix('/v1')}/openai/v1"
    assert f'base_url = "{place}"' in (desk.home / "config.toml").read_text()


def test_setup_needs_a_terminal(desk: Any) -> None:
    ran = desk.run("setup")
    assert ran.code == 2
    assert "needs a terminal" in ran.err


def test_a_stored_key_stays_secret(desk: Any, openai: ScriptedServer) -> None:
    store_key(str(desk.home), "openai", KEY)
    (desk.workspace / "leak").write_text(f"key: {KEY}\n")
    ran = desk.run("call", "read_file", '{"file_path": "leak"}')
    assert KEY not in ran.out
    assert "redacted" in ran.out


def test_a_key_file_that_others_can_read_is_refused(toolrest_home: Path) -> None:
    path = store_key(str(toolrest_home), "openai", KEY)
    assert json.loads(Path(path).read_text())["version"] == 1
    os.chmod(path, 0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        stored_keys(str(toolrest_home))
    os.chmod(path, 0o600)
    Path(path).write_text("[]")
    with pytest.raises(ConfigError, match="toolrest setup"):
        stored_keys(str(toolrest_home))


@pytest.mark.slow
def test_doctor_names_the_command_that_helps(desk: Any, openai: ScriptedServer) -> None:
    lines = {line.split(":")[0]: line for line in desk.run("doctor").out.splitlines()}
    assert lines["model"].startswith(f"model: {NEWEST} (the default of openai); key: Missing ")
    assert f"{desk.workspace} is not trusted" in lines["folder"]
    assert "git " in lines["programs"]
    assert "rg " in lines["programs"]
    assert {"       toolrest setup", f"       toolrest trust {desk.workspace}"} <= {
        f"       {line.removeprefix('to do:').strip()}" for line in lines.values()
    }
    env = {"ANTHROPIC_API_KEY": KEY}
    lines = {line.split(":")[0]: line for line in desk.run("doctor", env=env).out.splitlines()}
    assert lines["model"].endswith("; key: Anthropic, from ANTHROPIC_API_KEY")


@pytest.mark.slow
def test_the_first_run_of_the_chat_sets_up_and_goes_on(desk: Any, openai: ScriptedServer) -> None:
    with Screen([TOOLREST], cwd=desk.workspace, size=(40, 120)) as screen:
        screen.sees("Provider [1]:")
        screen.types("\n")
        screen.sees("Key (not shown):")
        screen.types(f"{KEY}\n")
        screen.sees("Model [gpt-5.5]:")
        screen.types("\n")
        screen.sees("Answer [1]:")
        screen.types("y\n")
        screen.sees("workspace-write · gpt-5.5")
        screen.types("hello\r")
        screen.sees("> hello", "Worked for")
        screen.types("\x04")
        assert screen.ends() == 0


@pytest.mark.slow
def test_a_folder_with_settings_is_asked_about_before_the_chat(
    desk: Any, openai: ScriptedServer
) -> None:
    (desk.workspace / "AGENTS.md").write_text("Be brief.\n")
    env = {"OPENAI_API_KEY": KEY}
    with Screen([TOOLREST], cwd=desk.workspace, size=(40, 120), env=env) as screen:
        screen.sees("AGENTS.md here will count.", "› 1. Yes")
        quiet(screen)
        screen.pastes("y")
        screen.shows("one moment")
        quiet(screen)
        screen.types("3")
        assert screen.ends() == 0
    assert trust_of(desk.workspace) is None, "no answer is none"


def _has_echo(screen: Screen) -> bool:
    return bool(termios.tcgetattr(screen.master)[3] & termios.ECHO)


@pytest.mark.parametrize("words", [("setup",), ()])
def test_ctrl_c_at_a_secret_leaves_a_terminal_that_echoes(
    desk: Any, openai: ScriptedServer, words: tuple[str, ...]
) -> None:
    """Failed before on the first run of the chat: the shell after it showed nothing of its line."""
    with Screen([TOOLREST, *words], cwd=desk.workspace, size=(40, 120)) as screen:
        screen.sees("Provider [1]:")
        screen.types("\n")
        screen.sees("Key (not shown):")
        screen.until(lambda: not _has_echo(screen))
        screen.types("\x03")
        assert screen.ends() == 130
        assert _has_echo(screen)
        assert screen.cursor[1] == 0, "what comes next begins a line of its own"
        assert "Traceback" not in screen.text


@pytest.mark.parametrize("words", [("setup",), ()])
def test_a_signal_at_a_secret_leaves_a_terminal_that_echoes(
    desk: Any, openai: ScriptedServer, words: tuple[str, ...]
) -> None:
    """Failed before: it died at once, without echo."""
    with Screen([TOOLREST, *words], cwd=desk.workspace, size=(40, 120)) as screen:
        screen.sees("Provider [1]:")
        screen.types("²\n")
        screen.sees("Type a number from 1 to")
        # What is typed before the question is there again is lost.
        screen.until(lambda: screen.text.count("Provider [1]:") == 2)
        screen.types("\n")
        screen.sees("Key (not shown):")
        screen.until(lambda: not _has_echo(screen))
        screen.process.send_signal(signal.SIGTERM)
        assert screen.ends() == 143
        assert _has_echo(screen)
        assert "Traceback" not in screen.text


def test_a_key_that_is_refused_is_asked_for_again_and_not_stored(
    desk: Any, openai: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failed before: the key was stored before anything had checked it."""
    refused = Fail(401, "invalid_api_key", "wrong key")
    with ScriptedServer([refused, refused, Say("ready")], models=("gpt-5.5",)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        with Screen([TOOLREST, "setup"], cwd=desk.workspace, size=(40, 200)) as screen:
            screen.sees("Provider [1]:")
            screen.types("\n")
            screen.sees("Key (not shown):")
            screen.types("sk-wrong\n")
            screen.sees("Model [gpt-5.5]:")
            screen.types("\n")
            screen.sees("the key is refused", "Another key (not shown; Enter: none):")
            assert stored_keys(str(desk.home)) == {}
            screen.types("\n")
            screen.sees("Try again")
            screen.types("n\n")
            assert screen.ends() == 130
        assert stored_keys(str(desk.home)) == {}
        with Screen([TOOLREST, "setup"], cwd=desk.workspace, size=(40, 200)) as screen:
            screen.sees("Provider [1]:")
            screen.types("\n")
            screen.sees("Key (not shown):")
            screen.types("sk-wrong\n")
            screen.sees("Model [gpt-5.5]:")
            screen.types("\n")
            screen.sees("Another key (not shown; Enter: none):")
            screen.types(f"{KEY}\n")
            screen.until(lambda: screen.text.count("Model [gpt-5.5]:") == 2)
            screen.types("\n")
            screen.sees("it answers", "key stored in")
    assert stored_keys(str(desk.home)) == {"openai": Secret(KEY)}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ('model_provider = "nowhere"\nmodel = "m"', "no provider is called 'nowhere'"),
        ('[model_providers.openai]\nbase_url = "ftp://x"', "expected an http:// or https://"),
    ],
)
@pytest.mark.parametrize("plain", [False, True])
def test_what_no_set_up_puts_right_is_said(
    desk: Any, openai: ScriptedServer, setting: str, words: str, plain: bool
) -> None:
    """Failed before: set-up began, and overwrote the provider."""
    (desk.home / "config.toml").write_text(f"{setting}\n")
    flags = ["chat", "--plain"] if plain else []
    with Screen([TOOLREST, *flags], cwd=desk.workspace, size=(40, 200)) as screen:
        assert screen.ends() == 2
        assert words in screen.text
        assert "Provider [" not in screen.text
    assert (desk.home / "config.toml").read_text() == f"{setting}\n"


@pytest.mark.slow
def test_the_set_up_of_a_chat_has_its_flags_and_comes_once(
    desk: Any, openai: ScriptedServer
) -> None:
    """Failed before: it asked again and again for what a flag overrides."""
    argv = [TOOLREST, "chat", "-c", "model_provider=anthropic"]
    with Screen(argv, cwd=desk.workspace, size=(40, 200)) as screen:
        screen.sees("Provider [2]:")
        screen.types("openai\n")
        screen.sees("Key (not shown):")
        screen.types(f"{KEY}\n")
        screen.sees("Model [")
        screen.types("gpt-5.5\n")
        screen.sees("Answer [1]:")
        screen.types("y\n")
        assert screen.ends() == 2
        assert "ANTHROPIC_API_KEY" in screen.text
        assert screen.text.count("Provider [") == 1


UP, DOWN, ESC = "\x1b[A", "\x1b[B", "\x1b"


def _nothing_is_stored(desk: Any) -> bool:
    return stored_keys(str(desk.home)) == {} and not (desk.home / "config.toml").exists()


@pytest.mark.slow
def test_setup_with_arrows_and_back_at_every_step(desk: Any, openai: ScriptedServer) -> None:
    with Screen([TOOLREST, "setup"], cwd=desk.workspace) as screen:
        screen.shows("Welcome to Toolrest", "With a key of yours", "›   1. OpenAI", "Provider [1]:")
        screen.types(DOWN)
        screen.shows("›   2. Anthropic", "Provider [2]:")
        screen.types(UP)
        screen.shows("›   1. OpenAI", "Provider [1]:")
        screen.types("\n")
        screen.shows("Key (not shown):")
        screen.lacks("2. Anthropic")
        screen.types(ESC)
        screen.shows("›   1. OpenAI")
        screen.types("\n")
        screen.shows("Key (not shown):")
        screen.types(f"{KEY}\n")
        screen.shows("›   gpt-5.5", "    gpt-6", "Model [gpt-5.5]:")
        screen.types(ESC)
        screen.until(lambda: screen.text.count("Key (not shown):") == 2, "the key again")
        assert _nothing_is_stored(desk)
        screen.types(f"{KEY}\n")
        screen.shows("Model [gpt-5.5]:")
        screen.types("6")
        screen.shows("›   gpt-6", "Model [gpt-6]: 6")
        screen.lacks("    gpt-5.5")
        screen.types("\n")
        screen.sees("it answers", "Answer [1]:")
        screen.types("y\n")
        screen.sees("Ready.")
        assert screen.ends() == 0
    assert stored_keys(str(desk.home)) == {"openai": Secret(KEY)}
    assert 'model = "gpt-6"' in (desk.home / "config.toml").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("steps", [[], ["\n"], ["\n", f"{KEY}\n"]])
def test_setup_is_cancelled_at_every_step_and_nothing_is_stored(
    desk: Any, openai: ScriptedServer, steps: list[str]
) -> None:
    with Screen([TOOLREST, "setup"], cwd=desk.workspace) as screen:
        asked = ["Provider [1]:", "Key (not shown):", "Model [gpt-5.5]:"]
        for step, question in zip([*steps, None], asked, strict=False):
            screen.shows(question)
            if step is not None:
                screen.types(step)
        for question in asked[: len(steps)][::-1]:
            before = screen.text.count(question)
            screen.types(ESC)
            if question != asked[0]:
                screen.until(lambda q=question, n=before: screen.text.count(q) > n, question)  # type: ignore[misc]
        screen.shows("›   1. OpenAI")
        screen.types(ESC)
        assert screen.ends() == 130
        assert _has_echo(screen)
    assert _nothing_is_stored(desk)


@pytest.mark.slow
def test_setup_takes_another_server_that_wants_no_key(desk: Any, openai: ScriptedServer) -> None:
    """Its address, no key, and its model from its own list."""
    with ScriptedServer(["ready", "ready"], models=("tiny", "tinier")) as server:
        with Screen([TOOLREST, "setup"], cwd=desk.workspace, size=(24, 100)) as screen:
            screen.shows("Provider [1]:")
            screen.types(DOWN)
            screen.shows("Provider [2]:")
            screen.types("openai-compatible\n")
            screen.shows("Address:")
            screen.types(f"{server.url}\n")
            screen.shows("Key (not shown; Enter: none):")
            screen.types("\n")
            screen.shows("›   tinier", "Model [tinier]:")
            screen.types(DOWN)
            screen.shows("Model [tiny]:")
            screen.types("\n")
            screen.sees("it answers", "Answer [1]:")
            screen.types("y\n")
            screen.sees("Ready.")
            assert screen.ends() == 0
        ran = desk.run("exec", "hello")
    assert (ran.code, ran.out) == (0, "ready\n"), ran.err
    assert server.requests[-1].body["model"] == "tiny"
    assert "authorization" not in server.requests[-1].headers


@pytest.mark.slow
@pytest.mark.parametrize("keeps", [True, False])
def test_a_key_is_kept_without_a_network_if_the_person_says_so(
    desk: Any, openai: ScriptedServer, monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with Screen([TOOLREST, "setup"], cwd=desk.workspace, size=(24, 100)) as screen:
        screen.shows("Provider [1]:")
        screen.types("1\n")
        screen.shows("Key (not shown):")
        screen.types(f"{KEY}\n")
        screen.shows("Cannot list models: no connection to 127.0.0.1", "Model [")
        screen.types("gpt-6\n")
        screen.shows("Keep the key and this model anyway, unchecked? [y/N]:")
        screen.types("y\n" if keeps else "\n")
        if keeps:
            screen.sees("key stored in", "Answer [1]:")
            screen.types("y\n")
            screen.sees("Ready.")
            assert screen.ends() == 0
            assert stored_keys(str(desk.home)) == {"openai": Secret(KEY)}
        else:
            screen.shows("Try again with another choice? [Y/n]:")
            screen.types("n\n")
            assert screen.ends() == 130
            assert _nothing_is_stored(desk)


@pytest.mark.slow
def test_setup_on_a_terminal_without_a_cursor_reads_lines(
    desk: Any, openai: ScriptedServer
) -> None:
    env = {"TERM": "dumb"}
    with Screen([TOOLREST, "setup"], cwd=desk.workspace, size=(40, 100), env=env) as screen:
        screen.sees("   1. OpenAI", "  18. Another OpenAI-compatible server", "Provider [1]:")
        assert b"\x1b[" not in screen.raw
        screen.types("1\n")
        screen.sees("Key (not shown):")
        screen.types("\x1b\n")
        screen.until(lambda: screen.text.count("Provider [1]:") == 2, "back")
        screen.types("\n")
        screen.until(lambda: screen.text.count("Key (not shown):") == 2)
        screen.types(f"{KEY}\n")
        screen.sees("    gpt-6", "Model [gpt-5.5]:")
        screen.types("\n")
        screen.sees("it answers", "Answer [1]:")
