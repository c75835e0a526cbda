"""Client roots: they narrow the launcher's workspace and writable folders, never widen them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from toolrest.policy.paths.names import inside

if TYPE_CHECKING:
    from toolrest.config import Config


def folders(uris: Iterable[str]) -> tuple[str, ...]:
    """The real paths of `file:` roots, sorted; roots of any other kind name no folder here."""
    found = set()
    for uri in uris:
        parts = urlsplit(uri)
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            path = unquote(parts.path)
            if path.startswith("/") and "\0" not in path:
                found.add(os.path.realpath(path))
    return tuple(sorted(found))


def narrowed(
    config: Config, workspace: str, roots: tuple[str, ...]
) -> tuple[str, Config, tuple[str, ...]]:
    """The workspace and settings that are left, and the roots that were outside the launcher's.

    A root inside what may be written keeps that part writable; a root around it keeps all of
    it. When nothing is left the session only reads.
    """
    settings = config.value
    writable = settings.sandbox_workspace_write
    own = (os.path.realpath(workspace), *map(os.path.realpath, writable.writable_roots))
    kept: list[str] = []
    outside: list[str] = []
    for root in roots:
        shared = [root if inside(root, mine) else mine for mine in own if _overlap(root, mine)]
        kept += [path for path in shared if path not in kept]
        if not shared:
            outside.append(root)
    if not kept:
        return workspace, _with(config, [], "read-only"), tuple(outside)
    first = own[0] if own[0] in kept else kept[0]
    others = [path for path in kept if path != first]
    mode = settings.sandbox_mode
    # danger-full-access ignores roots, so it becomes workspace-write.
    mode = "workspace-write" if mode == "danger-full-access" else mode
    return first, _with(config, others, mode), tuple(outside)


def _with(config: Config, writable_roots: list[str], mode: str) -> Config:
    settings = config.value
    writable = settings.sandbox_workspace_write.replace(writable_roots=tuple(writable_roots))
    value = settings.replace(sandbox_workspace_write=writable, sandbox_mode=mode)
    return replace(config, value=value)


def _overlap(one: str, other: str) -> bool:
    return inside(one, other) or inside(other, one)
