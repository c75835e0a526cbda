"""Absolute paths of a patch, resolved as text only; nothing is looked up on disk."""

from __future__ import annotations

from toolrest.patch.errors import ApplyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolrest.patch.codex_grammar import Patch

_DROPPED = {ord(c): None for c in "\t\r\n"}


class Target:
    """A path of a patch: as spelled, made absolute, and as error messages name it."""

    __slots__ = ("label", "path", "spelled")

    def __init__(self, spelled: str, path: str, label: str) -> None:
        self.spelled = spelled
        self.path = path
        self.label = label


def resolve(cwd: str, spelled: str, *, literal: bool = False) -> Target:
    """Join a path to the working directory; `..` is resolved as text.

    Codex's language cannot name a tab or CR in a path: it drops them. `literal` keeps them.
    """
    if "\0" in spelled or not _encodable(spelled):
        shown = spelled.encode("utf-8", "replace").decode()
        raise ApplyError(f"'{shown}' is invalid on 'linux'")
    absolute = spelled.startswith("/")
    parts = [] if absolute else [part for part in cwd.split("/") if part]
    for part in (spelled if literal else spelled.translate(_DROPPED)).split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    path = "/" + "/".join(parts)
    ends_in_slash = absolute and spelled.endswith("/") and len(parts) > 0
    return Target(spelled, path, f"{path}/" if ends_in_slash else path)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def targets(cwd: str, patch: Patch) -> list[str]:
    """Every absolute path that a patch would write or remove, in its order, each once."""
    paths: dict[str, None] = {}
    for operation in patch.operations:
        paths[resolve(cwd, operation.path).path] = None
        move_to = getattr(operation, "move_to", None)
        if move_to is not None:
            paths[resolve(cwd, move_to).path] = None
    return list(paths)
