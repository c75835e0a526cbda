"""`toolrest web`: sessions and approvals in a browser."""

from __future__ import annotations

import click

from toolrest.config.loader import load


@click.command("web")
@click.option("--host", help="The address to listen on; one that others can reach needs --cert.")
@click.option("--port", type=click.IntRange(0, 65535), help="The port; 0 takes a free one.")
@click.option("--cert", metavar="FILE", help="A certificate (PEM) for HTTPS.")
@click.option("--key", metavar="FILE", help="The private key (PEM) of --cert.")
@click.option("--read-only", is_flag=True, help="Do not answer approvals, only show them.")
@click.option("--batch", metavar="STORE", help="Also show the batch of this store.")
def command(
    host: str | None,
    port: int | None,
    cert: str | None,
    key: str | None,
    read_only: bool,
    batch: str | None,
) -> None:
    """Open sessions and approvals that wait in a browser.

    Prints a link that logs one browser in, once. The page shows the sessions of this home as they
    go on, replays them, saves them as files, and answers approvals that wait (on_ask = "defer").
    It can be reached from this machine only; see docs/web-ui.md for another device.

    \b
    toolrest web
    toolrest web --port 8100 --read-only
    """
    # Its packages are an extra, and --help is there without it.
    from toolrest.web_ui.start import Wanted, serve_page

    serve_page(load(surface="cli"), Wanted(host, port, cert, key, read_only, batch))
