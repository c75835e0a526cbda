"""`toolrest setup`: a provider, a key, a model, one request to check them, trust."""

from __future__ import annotations

import asyncio
import os

import click

from toolrest.agent.path_policy import default_workspace
from toolrest.cli.setup.checks import checks
from toolrest.cli.terminal.notices import typed_answer
from toolrest.cli.terminal.terminal import Terminal, is_terminal
from toolrest.config import Config
from toolrest.config.loader import load
from toolrest.config.trust import distrust, git_root, trust, trust_of
from toolrest.config.write import edit_user_file
from toolrest.errors import ConfigError
from toolrest.timeline.text import shown
from toolrest.urls import parse_url
from toolrest.wire.model import Completed, ModelError, ModelRequest
from toolrest.wire.presets import BUILT_IN, placeholders
from toolrest.wire.provider import Provider
from toolrest.wire.providers import client_for, list_models, named_provider, with_default_model
from toolrest.wire.stored_keys import store_key, stored_keys

_PATIENCE = 60.0
_SHOWN = 15


@click.command("setup")
def command() -> None:
    """Pick a provider and a model, type a key if none is in the environment, and check them.

    The key goes to a file that only you can read ($TOOLREST_HOME/keys.json), the choice to
    config.toml. One short request is sent to the model.
    """
    if not is_terminal():
        raise click.UsageError(
            "setup asks questions and needs a terminal; without one set a key's variable "
            "(OPENAI_API_KEY, ANTHROPIC_API_KEY, OPENROUTER_API_KEY), or: toolrest config set"
        )
    terminal = Terminal()
    asyncio.run(FirstRun(terminal).run())
    terminal.say("Ready. Try: toolrest")


class Left(click.Abort):
    """The person left the questions."""


class FirstRun:
    """The questions of the set-up, one after the other."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    async def run(self) -> None:
        """Ask, check and store."""
        workspace = default_workspace(None)
        stored = load(workspace=workspace, surface="cli")
        while True:
            name = await self._provider(stored)
            address = await self._address(stored, name)
            flags = {f"model_providers.{name}.base_url": address} if address else {}
            config = load(workspace=workspace, flags=flags, surface="cli")
            await self._key(config, name)
            provider = named_provider(config, name)
            model = await self._model(config, provider)
            if model and await self._works(provider, model):
                break
            if not await self._again():
                raise Left
        if address:
            edit_user_file(config.home, ("model_providers", name, "base_url"), address)
        edit_user_file(config.home, ("model_provider",), name)
        edit_user_file(config.home, ("model",), model)
        self._say(f"stored in {config.file}")
        await self._trust(workspace)
        for check in checks(load(workspace=workspace, surface="cli")):
            if check.fix:
                self._say(check.line)
        self._say("What the sandbox enforces here is in: toolrest doctor")

    async def _provider(self, config: Config) -> str:
        names = [*BUILT_IN, *(n for n in config.value.model_providers if n not in BUILT_IN)]
        usual = with_default_model(config).value.model_provider
        self._say("Which provider?")
        for number, name in enumerate(names, 1):
            title = BUILT_IN[name].name if name in BUILT_IN else name
            self._say(f"  [{number}] {shown(title)}{_known_key(config, name)}")
        start = names.index(usual) + 1 if usual in names else 1
        while True:
            typed = await self._ask(f"Provider [{start}]: ") or str(start)
            if typed in names:
                return typed
            if typed.isdigit() and 1 <= int(typed) <= len(names):
                return names[int(typed) - 1]
            self._say(f"  a number from 1 to {len(names)}, please")

    async def _address(self, config: Config, name: str) -> str:
        """Ask where a preset's server is, unless that is known; empty for what is known."""
        preset, row = BUILT_IN.get(name), config.value.model_providers.get(name)
        if preset is None or (row is not None and row.base_url):
            return ""
        if preset.hint:
            self._say(f"  {preset.hint}")
        template = preset.base_url
        if placeholders(template):
            return await self._filled(template)
        if preset.key_required or os.environ.get(preset.address_variable or "", "").strip():
            return ""
        while (typed := await self._ask(f"Address [{template}]: ")) and not _is_address(typed):
            self._say("  an address that begins with http:// or https://, please")
        return _with_path(typed)

    async def _filled(self, template: str) -> str:
        """Ask for the parts of an address that no variable has; empty when all of them do."""
        while True:
            address = template
            for variable in placeholders(template):
                if os.environ.get(variable, "").strip():
                    continue
                typed = await self._ask(f"{variable} (part of {template}): ")
                if not typed:
                    raise Left
                address = address.replace(f"{{{variable}}}", typed.rstrip("/"))
            if address == template:
                return ""
            if _is_address(address := _with_variables(address)):
                return address
            self._say(f"  that makes no address: {shown(address)}")

    async def _key(self, config: Config, name: str) -> None:
        """Take a key where one is needed and none is there."""
        try:
            provider = named_provider(config, name)
        except ConfigError:
            pass
        else:
            if provider.key:
                self._say(f"  key: {provider.key_variable or 'stored'}")
            return
        typed = await self._ask("Key (not shown): ", secret=True)
        if not typed:
            raise Left
        self._say(f"  stored in {store_key(config.home, name, typed)}, which only you can read")

    async def _model(self, config: Config, provider: Provider) -> str | None:
        try:
            listed = [row.id for row in await asyncio.wait_for(list_models(provider), _PATIENCE)]
        except (ModelError, TimeoutError) as error:
            self._say(f"  its models cannot be listed: {shown(str(error) or 'no answer')}")
            if isinstance(error, ModelError) and error.kind == "auth":
                await self._new_key(config, provider)
                return None
            listed = []
        built_in = BUILT_IN.get(provider.id)
        usual = config.value.model if config.value.model in listed else None
        usual = usual or (built_in.default_model if built_in else None)
        usual = usual or (listed[0] if listed else None)
        for name in listed[:_SHOWN]:
            self._say(f"  {shown(name)}")
        if listed[_SHOWN:]:
            self._say(f"  and {len(listed) - _SHOWN} more: toolrest models {provider.id}")
        return await self._ask(f"Model [{usual or ''}]: ") or usual

    async def _new_key(self, config: Config, provider: Provider) -> None:
        if provider.key_variable is None and (
            typed := await self._ask("Another key (not shown; Enter: none): ", secret=True)
        ):
            store_key(config.home, provider.id, typed)

    async def _works(self, provider: Provider, model: str) -> bool:
        """Send one short request."""
        self._say(f"  asking {shown(model)} …")
        try:
            await asyncio.wait_for(_asked(provider, model), _PATIENCE)
        except (ModelError, TimeoutError) as error:
            self._say(f"  it does not answer: {shown(str(error) or 'no answer in time')}")
            return False
        self._say("  it answers")
        return True

    async def _trust(self, workspace: str) -> None:
        folder = git_root(workspace) or workspace
        if trust_of(workspace) is not None:
            return
        self._say(f"Here: {shown(folder)}")
        self._say("In a folder that you trust, tools may write, and its own settings count.")
        typed = await typed_answer(self._terminal, "Do you trust it? [y]es / [n]o / later: ")
        if typed in ("y", "yes"):
            trust(folder)
        elif typed in ("n", "no"):
            distrust(folder)

    async def _again(self) -> bool:
        typed = await self._ask("Try again with another choice? [Y/n] ")
        return typed.lower() not in ("n", "no")

    async def _ask(self, prompt: str, *, secret: bool = False) -> str:
        typed = await self._terminal.line(prompt, secret=secret)
        if typed is None:
            raise Left
        return typed.strip()

    def _say(self, text: str) -> None:
        self._terminal.say(text)


def _is_address(typed: str) -> bool:
    try:
        parse_url(typed)
    except ValueError:
        return False
    return True


def _with_path(address: str) -> str:
    """The address with the version that every such server has, where it has no path at all."""
    bare = address.rstrip("/")
    return f"{bare}/v1" if bare.count("/") == 2 else bare


def _with_variables(template: str) -> str:
    for variable in placeholders(template):
        template = template.replace(f"{{{variable}}}", os.environ[variable].strip().rstrip("/"))
    return template


def _known_key(config: Config, name: str) -> str:
    built_in = BUILT_IN.get(name)
    if built_in is not None and built_in.env_key and os.environ.get(built_in.env_key, "").strip():
        return f" (key in {built_in.env_key})"
    if built_in is not None and not built_in.key_required:
        return " (your own server, no key)"
    return " (key stored)" if name in stored_keys(config.home) else ""


async def _asked(provider: Provider, model: str) -> None:
    client = client_for(provider, model)
    content = [{"type": "input_text", "text": "Answer with the word: ready"}]
    item = {"type": "message", "role": "user", "content": content}
    try:
        async for event in client.stream(ModelRequest(model, [item])):
            if isinstance(event, Completed):
                return
    finally:
        await client.aclose()
    raise ModelError("stream", "the answer broke off")
