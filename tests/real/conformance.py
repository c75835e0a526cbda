"""MCP's conformance suite: the versions that are run, and the scenarios that do not apply.

The newest stable version is run, and the newest of the next one, which has the scenarios of the
protocol of 2026-07-28.
"""

from __future__ import annotations

CONFORMANCE = "@modelcontextprotocol/conformance"
VERSIONS = {"stable": CONFORMANCE, "next": f"{CONFORMANCE}@>=0.2.0-alpha.12"}

_TOOLS = "Toolrest is a server of tools, without {}"
_ITS_OWN = "wants a tool that asks the client itself; ours ask for approvals and roots"
_PROMPTS = ("list", "get-simple", "get-with-args", "get-embedded-resource", "get-with-image")
_RESOURCES = (*("list", "read-text", "read-binary", "templates-read", "subscribe", "unsubscribe"),)
_ASKING = ("basic-elicitation", "basic-sampling", "request-state", "multiple-input-requests")
_ASKING_MORE = ("multi-round", "tampered-state", "capability-check", "ignore-extra-params")
_OLDER = {
    "logging-set-level": _TOOLS.format("log levels"),
    "tools-call-with-logging": _TOOLS.format("log levels"),
    "completion-complete": _TOOLS.format("completions"),
    **{f"resources-{name}": _TOOLS.format("resources") for name in _RESOURCES},
    **{f"prompts-{name}": _TOOLS.format("prompts") for name in _PROMPTS},
    **{
        f"tools-call-{name}": "its tools return texts and images"
        for name in ("audio", "embedded-resource", "mixed-content")
    },
    **dict.fromkeys(("tools-call-sampling", "tools-call-elicitation"), _ITS_OWN),
    **dict.fromkeys(("elicitation-sep1034-defaults", "elicitation-sep1330-enums"), _ITS_OWN),
}
_NEWER = {
    "server-stateless": _ITS_OWN,
    "sep-2164-resource-not-found": _TOOLS.format("resources"),
    "caching": _TOOLS.format("prompts and resources"),
    "http-custom-header-server-validation": "its tools have no arguments in headers",
    **{f"input-required-result-{name}": _ITS_OWN for name in (*_ASKING, *_ASKING_MORE)},
    "input-required-result-non-tool-request": _TOOLS.format("prompts"),
}
_SCHEMA = {"json-schema-2020-12": "wants a tool with a schema of its own"}
SERVER: dict[tuple[str, str], dict[str, str]] = {
    ("stable", "active"): {**_OLDER, **_SCHEMA},
    ("next", "active"): _OLDER,
    ("next", "draft"): _NEWER,
}
"""By version and suite."""

_MACHINES = "logins of machines without a person are not offered"
_NO_NULL = "arguments are held against the schema first, and null is no boolean"
_ISSUER = "the issuer of a login server is compared, as the next version of the suite wants"
_MACHINE_LOGINS = ("client-credentials-jwt", "client-credentials-basic")
_MORE_LOGINS = ("cross-app-access-complete-flow",)
_NEXT_LOGINS = ("enterprise-managed-authorization", "dpop", "dpop-nonce", "wif-jwt-bearer")
CLIENT: dict[str, dict[str, str]] = {
    "stable": {
        **{f"auth/{name}": _MACHINES for name in (*_MACHINE_LOGINS, *_MORE_LOGINS)},
        "auth/2025-03-26-oauth-metadata-backcompat": _ISSUER,
    },
    "next": {
        **{f"auth/{name}": _MACHINES for name in (*_MACHINE_LOGINS, *_NEXT_LOGINS)},
        "http-custom-headers": _NO_NULL,
    },
}
"""By version."""


def table() -> str:
    """The scenarios that do not apply, as a table of the page on compatibility."""
    rows = [
        f"| {side}, {version} | {', '.join(f'`{name}`' for name in names)} | {why} |"
        for side, version, why, names in _rows()
    ]
    return "\n".join(["| | scenarios | why not |", "|---|---|---|", *rows])


def _rows() -> list[tuple[str, str, str, list[str]]]:
    found: dict[tuple[str, str, str], list[str]] = {}
    for (version, _), names in SERVER.items():
        for name, why in names.items():
            found.setdefault(("server", version, why), []).append(name)
    for version, names in CLIENT.items():
        for name, why in names.items():
            found.setdefault(("client", version, why), []).append(name)
    return [(*key, names) for key, names in found.items()]
