"""Patches in shell commands: models habitually write `apply_patch <<'EOF'` to a shell.

Only a script that is nothing but such a call counts, and it is read as a syntax tree, never run:
what the heredoc holds is the patch, literally. Anything else is an ordinary command.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import tree_sitter
import tree_sitter_bash
from msgspec import Struct

from toolrest.patch import codex_grammar as grammar
from toolrest.patch.errors import ParseError, PatchError
from toolrest.patch.files.paths import resolve

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

NAMES = ("apply_patch", "applypatch")
_POSIX = ("bash", "zsh", "sh")
_POWERSHELL = ("pwsh", "powershell")


class ImplicitPatch(PatchError):
    """A bare patch was given to a shell, which would run it as commands."""

    def __init__(self) -> None:
        super().__init__(
            "patch detected without explicit call to apply_patch. "
            'Rerun as ["apply_patch", "<patch>"]'
        )


class ShellPatch(Struct, frozen=True):
    """A patch found in a command, and the folder that the script changes to first, if any."""

    text: str
    folder: str | None = None

    def cwd(self, workdir: str) -> str:
        """The directory that the patch is relative to, for a command run in `workdir`."""
        return resolve(workdir, self.folder or "").path


def recognise(argv: Sequence[str]) -> ShellPatch | None:
    """The patch that a command is, or None. ImplicitPatch for a patch without `apply_patch`."""
    script = _script(argv)
    bare = argv[0] if len(argv) == 1 else script
    if bare is not None and _is_patch(bare):
        raise ImplicitPatch
    if len(argv) == 2 and argv[0] in NAMES:
        return ShellPatch(argv[1])
    return None if script is None else in_script(script)


def in_script(script: str) -> ShellPatch | None:
    """The patch that a shell script consists of, or None."""
    if not any(name in script for name in NAMES):
        return None
    source = script.encode("utf-8", "replace")
    root = _parser().parse(source).root_node
    if root.has_error or root.type != "program" or len(root.named_children) != 1:
        return None
    statement = root.named_children[0]
    if statement.type != "redirected_statement" or len(statement.named_children) != 2:
        return None
    called, redirect = statement.named_children
    body = _heredoc(redirect)
    if body is None:
        return None
    text = _text(body).rstrip("\n")
    if called.type == "command":
        # Without `cd` the name must stand alone, but for variables set before it.
        return ShellPatch(text) if _is_call(called) and not _arguments(called) else None
    folder = _changed_to(called)
    return None if folder is None else ShellPatch(text, folder)


def _script(argv: Sequence[str]) -> str | None:
    if len(argv) not in (3, 4):
        return None
    shell = os.path.splitext(os.path.basename(argv[0]))[0].lower()
    flag = argv[-2].lower()
    if len(argv) == 4:
        known = shell in _POWERSHELL and argv[1].lower() == "-noprofile" and flag == "-command"
    elif shell in _POSIX:
        known = argv[1] in ("-lc", "-c")
    else:
        known = (shell in _POWERSHELL and flag == "-command") or (shell == "cmd" and flag == "/c")
    return argv[-1] if known else None


def _is_patch(text: str) -> bool:
    if grammar.BEGIN not in text:
        return False
    try:
        grammar.parse(text)
    except ParseError:
        return False
    return True


@cache
def _parser() -> Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _heredoc(redirect: Node) -> Node | None:
    """The body of a redirection that is a heredoc and nothing else."""
    parts = [child.type for child in redirect.named_children]
    if redirect.type != "heredoc_redirect" or parts != [
        "heredoc_start",
        "heredoc_body",
        "heredoc_end",
    ]:
        return None
    return redirect.named_children[1]


def _is_call(command: Node) -> bool:
    return _name(command) in NAMES


def _name(command: Node) -> str | None:
    """The command's name, when it is a plain word."""
    name = command.child_by_field_name("name") if command.type == "command" else None
    if name is None or [child.type for child in name.named_children] != ["word"]:
        return None
    return _text(name)


def _arguments(command: Node) -> list[Node]:
    return [node for node in command.children_by_field_name("argument") if node.is_named]


def _changed_to(called: Node) -> str | None:
    """The X of `cd X && apply_patch`."""
    if called.type != "list" or [child.type for child in called.children[1:2]] != ["&&"]:
        return None
    if len(called.named_children) != 2:
        return None
    change, call = called.named_children
    if _name(change) != "cd" or not _is_call(call):
        return None
    arguments = change.children_by_field_name("argument")
    return _literal(arguments[0]) if len(arguments) == 1 else None


def _literal(argument: Node) -> str | None:
    """A directory name as written; of a string with variables only its first literal piece."""
    if argument.type == "raw_string":
        return _text(argument)[1:-1]
    if argument.type == "string":
        pieces = [child for child in argument.named_children if child.type == "string_content"]
        return _text(pieces[0]) if pieces else None
    return _text(argument) if argument.type in ("word", "-") else None
