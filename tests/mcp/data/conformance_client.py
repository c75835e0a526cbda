"""Toolrest as the client of the MCP conformance suite: `client.py URL`, the scenario in a variable.

Logs in where the server wants that (the browser is a function here), lists the tools, and calls
each with values that its schema takes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from typing import Any

import httpx2

from toolrest import Toolrest
from toolrest.config.schema.mcp import McpServer
from toolrest.config.schema.validate import check_table
from toolrest.mcp.errors import McpError
from toolrest.mcp.login.oauth import login
from toolrest.mcp.login.tokens import token_store
from toolrest.mcp.servers import resolve

SCENARIO = os.environ["MCP_CONFORMANCE_SCENARIO"]
GIVEN: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
_log = logging.getLogger("conformance")
STEPS = 5
"""A call may turn out to need a login, or another scope."""
ECHO, FOCAL = "json_schema_echo", "json_schema_2020_12_tool"
"""A tool that wants the schema of another one, as the client has it."""


def value_for(schema: dict[str, Any]) -> Any:
    """A value that a schema takes."""
    known = {"number": 7, "integer": 7, "boolean": True, "array": [], "object": {}}
    return schema.get("default", known.get(str(schema.get("type")), "some text"))


async def browse(url: str) -> None:
    async with httpx2.AsyncClient() as client:
        page = await client.get(url)
        await client.get(page.headers["location"])


async def log_in(row: dict[str, Any], home: str, scopes: tuple[str, ...]) -> None:
    store = token_store(home, "file")
    opened: list[asyncio.Task[None]] = []

    async def show(url: str) -> None:
        opened.append(asyncio.ensure_future(browse(url)))

    server = resolve("web", check_table(McpServer, row), "user", "/f", os.environ)
    await login(server, store, show=show, scopes=scopes, patience=20)
    await asyncio.gather(*opened)


def row_for(url: str) -> dict[str, Any]:
    row: dict[str, Any] = {"url": url}
    if "client_id" in GIVEN:
        row["oauth_client_id"] = GIVEN["client_id"]
    if "client_secret" in GIVEN:
        os.environ["CONFORMANCE_SECRET"] = GIVEN["client_secret"]
        row["oauth_client_secret_env_var"] = "CONFORMANCE_SECRET"
    if SCENARIO == "auth/basic-cimd":
        row["oauth_client_id"] = "https://conformance-test.local/client-metadata.json"
    return row


async def call_all(row: dict[str, Any], home: str) -> tuple[str, bool]:
    """The words of what failed, and whether a login may help."""
    settings: dict[str, Any] = {f"mcp_servers.web.{key}": value for key, value in row.items()}
    settings["mcp.oauth_credentials_store"] = "file"
    settings["mcp_servers.web.default_tools_approval_mode"] = "approve"
    async with Toolrest(".", tools=["mcp"], settings=settings, home=home, on_ask="allow") as rest:
        rest.sample_with(sample)
        await rest.wait_for_mcp()
        assert rest.mcp is not None
        status = rest.mcp.status()[0]
        _log.error("%s %s", status.line(), dict(status.rejected))
        if status.state != "ready":
            return status.reason, "mcp login" in status.reason
        known = dict(rest.mcp.connections["web"].definitions)
        for name, definition in known.items():
            given = arguments_for(name, definition.input_schema)
            if name == ECHO and FOCAL in known:
                given = [{"schema": known[FOCAL].input_schema}]
            for arguments in given:
                output = await rest.call(f"web/{name}", arguments)
                _log.error("%s: %s", name, output.text[:300])
                if output.failed and "mcp login" in output.text:
                    return output.text, True
        return "", False


def arguments_for(name: str, schema: dict[str, Any]) -> list[dict[str, Any]]:
    wanted = [each["arguments"] for each in GIVEN.get("toolCalls", ()) if each["name"] == name]
    properties = schema.get("properties") or {}
    plain = {key: value_for(part) for key, part in properties.items()}
    return wanted or [plain]


async def sample(_server: str, _params: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": {"type": "text", "text": "4"}, "model": "m"}


async def main(url: str, home: str) -> int:
    row = row_for(url)
    scopes: tuple[str, ...] = ()
    for _ in range(STEPS):
        problem, wants_login = await call_all(row, home)
        if not wants_login:
            return 1 if problem else 0
        if "--scopes " in problem:
            scopes = tuple(problem.split("--scopes ")[1].split()[0].rstrip(",;").split(","))
        try:
            await log_in(row, home, scopes)
        except McpError as error:
            _log.error("%s", error)
            return 1
    return 1


if __name__ == "__main__":
    logging.basicConfig(level="ERROR")
    sys.exit(asyncio.run(main(sys.argv[1], os.environ["TOOLREST_HOME"])))
