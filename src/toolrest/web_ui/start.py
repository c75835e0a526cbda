"""Start the page's server: where it listens, and what is printed for the person."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import ssl
import sys
from collections.abc import Callable
from functools import cache
from typing import TextIO

from msgspec import Struct

from toolrest.config import Config
from toolrest.errors import ConfigError
from toolrest.serve import listening
from toolrest.web_ui.access import Logins
from toolrest.web_ui.batch_view import BatchView
from toolrest.web_ui.listing import Prices
from toolrest.web_ui.server import WebPage
from toolrest.wire.model_facts import model_facts
from toolrest.wire.prices import Price


class Wanted(Struct, frozen=True):
    """What the command line asks for; None is what the settings say."""

    host: str | None = None
    port: int | None = None
    cert: str | None = None
    key: str | None = None
    read_only: bool = False
    batch: str | None = None


def serve_page(config: Config, wanted: Wanted) -> None:
    """Serve until the process is asked to stop; ConfigError when that cannot be done safely."""
    settings = config.value.web_ui
    host = wanted.host or settings.host
    _check(host, wanted)
    sock = listening.listen(host, settings.port if wanted.port is None else wanted.port)
    port = sock.getsockname()[1]
    scheme = "https" if wanted.cert else "http"
    names = listening.names_of(host)
    batch = wanted.batch or settings.batch
    page = WebPage(
        config.home,
        Logins(settings.idle_minutes * 60),
        tuple(f"{name}:{port}" for name in names),
        scheme,
        wanted.read_only or settings.read_only,
        f"{secrets.randbelow(1_000_000):06d}",
        settings.control and listening.is_loopback(host),
        config.workspace or os.getcwd(),
        _prices(config),
        BatchView(batch) if batch else None,
    )

    def link() -> None:
        _say(f"{scheme}://{names[0]}:{port}/#token={page.logins.link()}", sys.stdout)

    link()
    more = "press Enter" if sys.stdin.isatty() else "start again"
    _say(f"the link logs one tab of a browser in, once; {more} for another")
    if not page.read_only:
        _say(f"the code for approvals of critical calls is {page.pin}")
    try:
        asyncio.run(_serve(page, sock, wanted, link))
    except ssl.SSLError as error:
        raise ConfigError(f"--cert {wanted.cert}, --key {wanted.key}: {error}") from None


async def _serve(
    page: WebPage, sock: socket.socket, wanted: Wanted, link: Callable[[], None]
) -> None:
    """Serve; each Enter at the terminal prints another link."""
    if sys.stdin.isatty():
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _entered, link)
    await listening.serve(page.application(), sock, wanted.cert, wanted.key)


def _entered(link: Callable[[], None]) -> None:
    """Read what was typed; nothing while the terminal is another program's, or is gone."""
    file, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    try:
        if os.tcgetpgrp(file) != os.getpgrp():
            loop.remove_reader(file)
            loop.call_later(1.0, loop.add_reader, file, _entered, link)
            return
        typed = os.read(file, 4096)
    except OSError:
        typed = b""
    if not typed:
        loop.remove_reader(file)
    else:
        link()


def _prices(config: Config) -> Prices:
    """The price of a model by its name and its provider's."""

    @cache
    def price(model: str, provider: str | None) -> Price | None:
        return model_facts(config, model, provider or "").price

    return price


def _say(text: str, stream: TextIO = sys.stderr) -> None:
    stream.write(f"toolrest: {text}\n")
    stream.flush()


def _check(host: str, wanted: Wanted) -> None:
    if listening.is_wildcard(host):
        raise ConfigError(
            f"--host {host}: give the one address or name by which browsers call this machine"
        )
    if not listening.is_loopback(host) and not (wanted.cert and wanted.key):
        raise ConfigError(
            f"--host {host}: other machines could reach this address, so it needs --cert and"
            " --key; or leave it out and use a tunnel (docs/web-ui.md)"
        )
    if bool(wanted.cert) != bool(wanted.key):
        raise ConfigError("--cert and --key go together")
    for name, path in (("--cert", wanted.cert), ("--key", wanted.key)):
        if path is not None and not os.path.isfile(path):
            raise ConfigError(f"{name} {path}: there is no such file")
