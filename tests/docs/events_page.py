"""The page of events, made from their classes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.docs.api_page import SOURCE, code, escape, text

HEAD = """\
# Events

<!-- Written by TOOLREST_WRITE_DOCS=1 pytest tests/docs: change the source, not this page. -->

What a session says while it works: `async for event in events`
([library](../library.md#conversations-and-events)). Each event has `type`, `seq` (its number in the
session), `time` and `turn_id`; `event.to_json()` is a flat JSON object. Texts have no secrets any
more: they are redacted.

`toolrest exec --json` turns these into the lines of `codex exec --json` ([exec](../exec.md#events),
[schema](../exec-events.schema.json)).
"""
BASE = {"seq", "time", "turn_id", "suspect", "type"}


def is_event(node: ast.ClassDef, events: set[str]) -> bool:
    """Whether a class is below one of these."""
    return any(ast.unparse(base) in events for base in node.bases)


def classes() -> dict[str, ast.ClassDef]:
    """Every class below `Event`, and `Event` itself; all say `kw_only` where they are declared."""
    texts = [path.read_text() for path in sorted(SOURCE.rglob("*.py"))]
    found = [
        node
        for source in texts
        if re.search(r"^class .*kw_only=True", source, re.MULTILINE)
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef)
    ]
    events = {"Event"}
    while more := {node.name for node in found if is_event(node, events)} - events:
        events |= more
    return {node.name: node for node in found if node.name == "Event" or is_event(node, events)}


def type_of(node: ast.ClassDef) -> str | None:
    """The value of an event's `type`."""
    for each in node.body:
        target = each.targets[0] if isinstance(each, ast.Assign) else getattr(each, "target", None)
        if isinstance(target, ast.Name) and target.id == "type":
            return str(ast.literal_eval(each.value))  # type: ignore[attr-defined]
    return None


def lineage(node: ast.ClassDef, known: dict[str, ast.ClassDef]) -> Iterator[ast.ClassDef]:
    """A class after those it inherits from."""
    for base in node.bases:
        if ast.unparse(base) in known:
            yield from lineage(known[ast.unparse(base)], known)
    yield node


def rows(node: ast.ClassDef, known: dict[str, ast.ClassDef]) -> list[str]:
    """A row for each field."""
    found = {}
    for one in lineage(node, known):
        for each, after in zip(one.body, [*one.body[1:], None], strict=True):
            if not isinstance(each, ast.AnnAssign) or ast.unparse(each.target) in BASE:
                continue
            meaning = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                meaning = " ".join(str(after.value.value).split())
            kind = ast.unparse(each.annotation)
            if each.value is not None and "field(" not in ast.unparse(each.value):
                kind += f" = {ast.unparse(each.value)}"
            found[ast.unparse(each.target)] = (kind, meaning)
    return [f"| `{name}` | {code(kind)} | {escape(more)} |" for name, (kind, more) in found.items()]


def page() -> str:
    """The whole page."""
    known = classes()
    named = {kind: node for node in known.values() if (kind := type_of(node)) != "event"}
    parts = [HEAD.rstrip()]
    for kind, node in sorted((kind, node) for kind, node in named.items() if kind):
        parts += [f"## {kind}", f"`{node.name}`. {text(node)}"]
        if found := rows(node, known):
            parts.append("\n".join(["| field | type | meaning |", "|---|---|---|", *found]))
    return "\n\n".join(parts) + "\n"
