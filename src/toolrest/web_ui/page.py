"""The page itself: one HTML document with its style and script inside, named by their hashes."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

SCRIPTS = (
    *("dom.js", "blocks.js", "diff.js", "panels.js", "steps.js", "batch.js"),
    *("questions.js", "composer.js", "sessions.js", "views.js", "app.js"),
)


@cache
def _parts() -> tuple[str, str, str]:
    """The document with holes in it, its style and its script."""
    folder = files("toolrest.web_ui") / "static"
    script = "\n".join((folder / name).read_text("utf-8") for name in SCRIPTS)
    return (
        (folder / "page.html").read_text("utf-8"),
        (folder / "style.css").read_text("utf-8"),
        script,
    )


def document(data: Any = None) -> str:
    """The whole page; with data, one that needs no server: a session as a file."""
    html, style, script = _parts()
    text = _text_of(data).replace("<", "\\u003c")
    policy = content_policy(offline=data is not None)
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">' if data else ""
    for hole, part in (("META", meta), ("STYLE", style), ("DATA", text), ("SCRIPT", script)):
        html = html.replace(f"<!--{hole}-->", part, 1)
    return html


def _text_of(data: Any) -> str:
    """The data as JSON; its lists an entry at a time, for one call holds up every other thread."""
    if not isinstance(data, dict):
        return json.dumps(data)
    return "{" + ",".join(f"{json.dumps(name)}: {_part(part)}" for name, part in data.items()) + "}"


def _part(part: Any) -> str:
    return f"[{','.join(map(json.dumps, part))}]" if isinstance(part, list) else json.dumps(part)


def content_policy(*, offline: bool = False) -> str:
    """The Content-Security-Policy: our one script and style, and nothing from anywhere else."""
    _, style, script = _parts()
    rules: Iterable[str] = (
        "default-src 'none'",
        f"script-src '{_hash(script)}'",
        f"style-src '{_hash(style)}'",
        "connect-src " + ("'none'" if offline else "'self'"),
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
    )
    return "; ".join(rules if offline else (*rules, "frame-ancestors 'none'"))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
