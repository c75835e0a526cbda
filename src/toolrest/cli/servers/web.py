"""`toolrest web`: sessions and approvals in a browser."""

from __future__ import annotations

import asyncio
import os
import secrets
import ssl

import click

from toolrest.config.loader import load
from toolrest.errors import ConfigError
from toolrest.serve import listening
from toolrest.web_ui.access import Logins
from toolrest.web_ui.server import WebPage


@click.command("web")
@click.option("--host", help="The address to listen on; other machines' needs --cert.")
@click.option("--port", type=click.IntRange(0, 65535), help="The port; 0 takes a free one.")
@click.option("--cert", metavar="FILE", help="A certificate (PEM) for HTTPS.")
@click.option("--key", metavar="FILE", help="Its private key (PEM).")
@click.option("--read-only", is_flag=True, help="Show only: no approval can be answered.")
def command(
    host: str | None, port: int | None, cert: str | None, key: str | None, read_only: bool
) -> None:
    """Open sessions and approvals that wait in a browser.

    Prints a link that logs one browser in, once. The page shows the sessions of this home as they
    go on, replays them, saves them as files, and answers approvals that wait (on_ask = "defer").
    It can be reached from this machine only; see docs/web-ui.md for another device.

    \b
    toolrest web
    toolrest web --port 8100 --read-only
    """
    config = load(surface="cli")
    settings = config.value.web_ui
    where = host or settings.host
    if not listening.is_loopback(where) and not (cert and key):
        raise ConfigError(
            f"--host {where}: other machines could reach this address, so it needs --cert and"
            " --key; or leave it out and use a tunnel (docs/web-ui.md)"
        )
    if bool(cert) != bool(key):
        raise ConfigError("--cert and --key go together")
    for name, path in (("--cert", cert), ("--key", key)):
        if path is not None and not os.path.isfile(path):
            raise ConfigError(f"{name} {path}: there is no such file")
    sock = listening.listen(where, settings.port if port is None else port)
    number = sock.getsockname()[1]
    scheme = "https" if cert else "http"
    kept = os.path.join(config.home, "run", f"web-{number}.logins")
    logins = Logins(settings.idle_minutes * 60, file=kept)
    code = f"{secrets.randbelow(1_000_000):06d}"
    names = listening.names_of(where)
    page = WebPage(
        config.home,
        logins,
        tuple(f"{name}:{number}" for name in names),
        scheme,
        read_only or settings.read_only,
        code,
    )
    click.echo(f"toolrest: {scheme}://{names[0]}:{number}/#token={logins.link()}")
    click.echo("toolrest: the link logs one browser in, once; start again for another", err=True)
    if not page.read_only:
        click.echo(f"toolrest: the code for approvals of critical calls is {code}", err=True)
    try:
        asyncio.run(listening.serve(page.application(), sock, cert, key))
    except ssl.SSLError as error:
        raise ConfigError(f"--cert {cert}, --key {key}: {error}") from None
