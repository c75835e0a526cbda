"""`toolrest mcp login` and `logout`: tokens for servers over HTTP."""

from __future__ import annotations

import asyncio
import os
import webbrowser

import click

from toolrest.cli.options import Choices, session_options
from toolrest.mcp.login.tokens import TokenStore, token_store
from toolrest.mcp.servers import Server, configured, no_server


@click.command("login")
@session_options
@click.option("--scopes", help="The OAuth scopes to ask for, separated by commas.")
@click.option(
    "--port", type=click.IntRange(1, 65535), help="The local port that the browser returns to."
)
@click.option("--no-browser", is_flag=True, help="Print the address; do not open a browser.")
@click.argument("name")
def login_command(
    choices: Choices, name: str, scopes: str | None, port: int | None, no_browser: bool
) -> None:
    """Log in to the server NAME in a browser; the tokens are kept for your sessions."""
    from toolrest.mcp.login.oauth import login

    server, store, default_port = _found(choices, name)

    async def show(url: str) -> None:
        click.echo(f"Open this address to log in to {name}:\n{url}")
        if not no_browser:
            await asyncio.to_thread(webbrowser.open, url)

    chosen = tuple(part.strip() for part in (scopes or "").split(",") if part.strip())
    asyncio.run(login(server, store, show=show, port=port or default_port, scopes=chosen))
    click.echo(f"logged in to {name}")


@click.command("logout")
@session_options
@click.argument("name")
def logout_command(choices: Choices, name: str) -> None:
    """Forget the tokens of the server NAME."""
    server, store, _ = _found(choices, name)
    gone = server.url is not None and store.remove(server.url)
    click.echo(f"logged out of {name}" if gone else f"there was no login for {name}")


def _found(choices: Choices, name: str) -> tuple[Server, TokenStore, int | None]:
    config = choices.load()
    servers = configured(config, os.environ, config.workspace or os.getcwd()).servers
    if name not in servers:
        raise no_server(name)
    options = config.value.mcp
    store = token_store(config.home, options.oauth_credentials_store)
    return servers[name], store, options.oauth_callback_port
