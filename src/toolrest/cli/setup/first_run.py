"""`toolrest setup`: a provider, a key, a model, one request to check them, trust, the sandbox."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import click
from msgspec.structs import replace

from toolrest.agent.path_policy import default_workspace
from toolrest.cli.setup.checks import checks
from toolrest.cli.setup.sandbox_checks import sandbox_verdict
from toolrest.cli.terminal.menu import BACK, Menu, ask
from toolrest.cli.terminal.notices import ask_folder
from toolrest.cli.terminal.progress import progress
from toolrest.cli.terminal.signals import ended_by_signals
from toolrest.cli.terminal.terminal import Terminal, is_terminal
from toolrest.config import Config
from toolrest.config.keys import Key
from toolrest.config.loader import load
from toolrest.config.write import edit_user_values
from toolrest.errors import ConfigError
from toolrest.timeline.text import shown
from toolrest.urls import parse_url
from toolrest.wire.model import Completed, ModelError, ModelRequest
from toolrest.wire.model_facts import default_model
from toolrest.wire.presets import BUILT_IN, placeholders
from toolrest.wire.provider import Provider
from toolrest.wire.providers import client_for, list_models, named_provider, with_default_model
from toolrest.wire.stored_keys import store_key, stored_keys

_PATIENCE = 60.0
ANY_SERVER = "openai-compatible"
_HOSTED, _NEAR, _CLOUDS, _OTHERS = _GROUPS = (
    "With a key of yours",
    "On your own machine or network",
    "In your cloud account",
    "Any other",
)
_WELCOME = """\
Welcome to Toolrest. First: which model answers?
↑ ↓ and Enter choose, or type it. Esc goes back, Ctrl-C leaves.
Nothing is stored before a model has answered.
"""


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
    asyncio.run(ended_by_signals(FirstRun(terminal).run()))
    terminal.say("Ready. Try: toolrest")


class Left(click.Abort):
    """Raised when the person leaves the set-up."""


class _Back(Exception):
    """The person goes back to the step before."""


class _Again(Exception):
    """The person begins again with another choice."""


Load: TypeAlias = Callable[[Mapping[str, Any]], Config]
"""Loads the settings of a run, with these flags on top."""


def _usual_settings(flags: Mapping[str, Any]) -> Config:
    return load(workspace=default_workspace(None), flags=flags, surface="cli")


class FirstRun:
    """The questions of the set-up, one after the other.

    What is typed is stored once the model has answered: a wrong key or address leaves nothing.
    """

    def __init__(self, terminal: Terminal, load_: Load = _usual_settings) -> None:
        self._terminal = terminal
        self._load = load_
        self._typed: dict[str, str] = {}
        """Keys that were typed, by provider."""
        self._stored = load_({})
        self._name = self._address = ""
        self._model: str | None = None
        self._has_asked = False
        """Whether the step at hand has asked something, so that one can go back to it."""

    async def run(self) -> None:
        """Ask, check and store."""
        for line in _WELCOME.split("\n"):
            self._say(line)
        await self._choose()
        name, address, home = self._name, self._address, self._stored.home
        if key := self._typed.get(name):
            self._say(f"  key stored in {store_key(home, name, key)}")
        values: dict[Key, Any] = {("model_provider",): name, ("model",): self._model}
        if address:
            values[("model_providers", name, "base_url")] = address
        edit_user_values(home, values)
        self._say(f"stored in {self._stored.file}")
        await ask_folder(self._terminal, self._load({}))
        config = self._load({})
        for check in checks(config):
            if check.fix:
                self._say(check.line)
        with progress("trying the sandbox"):
            sandbox = await asyncio.to_thread(sandbox_verdict, config)
        self._say(f"sandbox: {sandbox.text}")
        if sandbox.remedy:
            self._say(f"To get the full one (nothing of this is run here): {sandbox.remedy}")

    async def _choose(self) -> None:
        """Take the steps until a model is chosen; Esc goes back to the last that asked."""
        steps = (self._choose_provider, self._choose_address, self._key, self._choose_model)
        asked: list[int] = []
        at = 0
        while at < len(steps):
            self._has_asked = False
            try:
                await steps[at]()
            except _Back:
                if not asked:
                    raise Left from None
                at = asked.pop()
                if steps[at] == self._key:
                    self._typed.pop(self._name, None)
                continue
            except _Again:
                at, asked = 0, []
                continue
            if self._has_asked:
                asked.append(at)
            at += 1

    @property
    def _config(self) -> Config:
        """The settings with what is chosen so far."""
        place = f"model_providers.{self._name}.base_url"
        return self._load({place: self._address}) if self._address else self._stored

    async def _choose_provider(self) -> None:
        self._name, self._address = await self._provider(self._stored), ""

    async def _choose_address(self) -> None:
        self._address = await self._ask_address(self._stored, self._name)

    async def _choose_model(self) -> None:
        config = self._config
        self._model = await self._working_model(config, self._name)
        if self._model is None:
            if not await self._again():
                raise Left
            raise _Again

    async def _working_model(self, config: Config, name: str) -> str | None:
        """A model that answers; None when none does. A key that is refused is asked for again."""
        while True:
            try:
                provider = self._resolved(config, name)
                model = await self._ask_model(config, provider)
                return model if model and await self._works(provider, model) else None
            except ConfigError as error:  # a key with characters that no key has
                self._say(f"  {shown(str(error))}")
            except ModelError as error:
                self._say(f"  the key is refused: {shown(str(error))}")
                if provider.key_variable is not None:
                    return None  # it is not ours to change
            typed = await self._ask("Another key (not shown; Enter: none)", secret=True)
            if not typed:
                return None
            self._typed[name] = typed

    def _resolved(self, config: Config, name: str) -> Provider:
        """The provider, with the key that was typed for it."""
        typed, row = self._typed.get(name), config.value.model_providers.get(name)
        variable = (row and row.env_key) or (BUILT_IN[name].env_key if name in BUILT_IN else None)
        if not typed or variable is None:
            return named_provider(config, name)
        provider = named_provider(config, name, {**os.environ, variable: typed})
        return replace(provider, key_variable=None)

    async def _provider(self, config: Config) -> str:
        own = [name for name in config.value.model_providers if name not in BUILT_IN]
        groups = {head: [n for n in BUILT_IN if _group(n) == head] for head in _GROUPS}
        groups[_OTHERS] = [*groups[_OTHERS], *own]
        names = [name for group in groups.values() for name in group]
        usual = with_default_model(config).value.model_provider
        menu = Menu(
            [
                f"{number:>3}. {_title(name)}{_known_key(config, name)}"
                for number, name in enumerate(names, 1)
            ],
            [str(number) for number in range(1, len(names) + 1)],
            names.index(usual) if usual in names else 0,
            {names.index(group[0]): head for head, group in groups.items() if group},
        )
        while True:
            typed = await self._ask("Provider", menu=menu)
            if typed in names:
                return typed
            if typed.isascii() and typed.isdecimal() and 1 <= int(typed) <= len(names):
                return names[int(typed) - 1]
            self._say(f"  Type a number from 1 to {len(names)}")

    async def _ask_address(self, config: Config, name: str) -> str:
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
        while (typed := await self._ask(f"Address [{template}]")) and not _is_address(typed):
            self._say("  Type an address that begins with http:// or https://")
        return _with_path(typed)

    async def _filled(self, template: str) -> str:
        """Ask for the parts of an address that no variable has; empty when all of them do."""
        while True:
            address = template
            for variable in placeholders(template):
                if os.environ.get(variable, "").strip():
                    continue
                part = f"{variable} (part of {template})"
                typed = await self._ask(part if template != f"{{{variable}}}" else "Address")
                if not typed:
                    raise _Back
                address = address.replace(f"{{{variable}}}", typed.rstrip("/"))
            if address == template:
                return ""
            if _is_address(address := _with_variables(address)):
                return address
            self._say(f"  No address: {shown(address)}")

    async def _key(self) -> None:
        """Ask for a key where one is needed, or may be, and none is there."""
        config, name = self._config, self._name
        with suppress(ConfigError):
            provider = self._resolved(config, name)
            if provider.key:
                where = provider.key_variable or ("typed" if name in self._typed else "stored")
                self._say(f"  key: {where}")
                return
            if name != ANY_SERVER:
                return
        may_have_none = name == ANY_SERVER
        self._say(
            "  Once it works, the key is stored in a file or keyring which only you can read."
        )
        label = "Key (not shown; Enter: none)" if may_have_none else "Key (not shown)"
        typed = await self._ask(label, secret=True)
        if typed:
            self._typed[name] = typed
        elif not may_have_none:
            raise _Back

    async def _ask_model(self, config: Config, provider: Provider) -> str | None:
        try:
            with progress(f"asking {provider.name} for its models"):
                asked = list_models(provider, config.home)
                rows = await asyncio.wait_for(asked, _PATIENCE)
            listed = [row.id for row in rows]
        except (ModelError, TimeoutError) as error:
            if _is_refused(error):
                raise
            self._say(f"  Cannot list models: {_reason(error, provider)}")
            listed = []
        usual = config.value.model if config.value.model in listed else None
        usual = usual or default_model(config, provider.id)
        usual = usual or (listed[0] if listed else None)
        names = listed if usual is None or usual in listed else [usual, *listed]
        at = names.index(usual) if usual is not None else 0
        menu = Menu([f"  {name}" for name in names], names, at, filters=True) if names else None
        return await self._ask("Model", menu=menu) or usual

    async def _works(self, provider: Provider, model: str) -> bool:
        """Whether the model answers a short request; ModelError when the key is refused."""
        self._say(f"  asking {shown(model)} …")
        try:
            await asyncio.wait_for(_asked(provider, model), _PATIENCE)
        except (ModelError, TimeoutError) as error:
            if _is_refused(error):
                raise
            self._say(f"  it does not answer: {_reason(error, provider)}")
            return _is_away(error) and await self._keeps_it()
        self._say("  it answers")
        return True

    async def _keeps_it(self) -> bool:
        """Whether to keep what could not be checked, where there is no network just now."""
        kept = "the key and this model" if self._typed.get(self._name) else "this model"
        typed = await self._ask(f"Keep {kept} anyway, unchecked? [y/N]")
        return typed.lower() in ("y", "yes")

    async def _again(self) -> bool:
        typed = await self._ask("Try again with another choice? [Y/n]")
        return typed.lower() not in ("n", "no")

    async def _ask(self, label: str, *, secret: bool = False, menu: Menu | None = None) -> str:
        typed = await ask(self._terminal, label, secret=secret, menu=menu)
        if typed is None:
            raise Left
        if typed == BACK:
            raise _Back
        self._has_asked = True
        return typed

    def _say(self, text: str) -> None:
        self._terminal.say(text)


def _is_refused(error: Exception) -> bool:
    return isinstance(error, ModelError) and error.kind == "auth"


def _is_away(error: Exception) -> bool:
    return isinstance(error, TimeoutError) or getattr(error, "kind", "") == "unreachable"


def _reason(error: Exception, provider: Provider) -> str:
    if _is_away(error):
        return f"no connection to {shown(parse_url(provider.base_url.reveal()).host)}"
    return shown(str(error))


def _group(name: str) -> str:
    """The heading under which a preset stands."""
    preset = BUILT_IN[name]
    if name == ANY_SERVER:
        return _OTHERS
    if placeholders(preset.base_url):
        return _CLOUDS
    return _HOSTED if preset.key_required else _NEAR


def _title(name: str) -> str:
    if name == ANY_SERVER:
        return "Another OpenAI-compatible server"
    return BUILT_IN[name].name if name in BUILT_IN else shown(name)


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
    if built_in is not None and not built_in.key_required and name != ANY_SERVER:
        return " (no key)"
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
