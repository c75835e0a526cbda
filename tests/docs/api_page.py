"""The page of public Python names, made from their source and docstrings."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path
from types import ModuleType

import toolrest
import toolrest.serve
import toolrest.testing

SOURCE = Path(toolrest.__file__).parent
ABOUT = {
    toolrest: "",
    toolrest.serve: "An agent for other programs ([serving](../serving.md)).",
    toolrest.testing: "For tests of your own ([testing](../testing.md)).",
}
INTEGRATIONS = ("inspect_ai", "langchain", "openai_agents", "pydantic_ai")
Function = ast.FunctionDef | ast.AsyncFunctionDef
HEAD = """\
# The Python library, name by name

<!-- Written by TOOLREST_WRITE_DOCS=1 pytest tests/docs: change the source, not this page. -->

Start with [`Agent`](#agent), or with [`Toolrest`](#toolrest) if you have a loop of your own; [the
library's page](../library.md) shows how the parts work together. [Events](events.md) have their own
page. Only these names are promised ([what stays compatible](../compatibility-promise.md)).
"""


@cache
def tree(module: str) -> ast.Module:
    """The source of a module below toolrest."""
    file = SOURCE.joinpath(*module.split(".")[1:])
    path = file.with_suffix(".py") if file.with_suffix(".py").exists() else file / "__init__.py"
    return ast.parse(path.read_text())


def homes(package: ModuleType) -> dict[str, str]:
    """Every public name of a package and the module that has it."""
    known: dict[str, str] = dict(package._NAMES._homes)
    of_classes = {name: getattr(getattr(package, name), "__module__", "") for name in known}
    return known | {n: home for n, home in of_classes.items() if home.startswith("toolrest.")}


def find(module: str, name: str) -> ast.ClassDef | Function:
    """The class or the function itself, not its overloads."""
    found: ast.ClassDef | Function | None = None
    for node in tree(module).body:
        if isinstance(node, ast.ClassDef | Function) and node.name == name:
            found = node
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            found = find(module, ast.unparse(node.value))
    assert found is not None, f"{module} has no {name}"
    return found


def text(node: ast.ClassDef | Function) -> str:
    """A docstring as paragraphs."""
    return inspect.cleandoc(ast.get_docstring(node) or "")


def decorators(node: Function) -> set[str]:
    """The names of a function's decorators."""
    return {ast.unparse(each) for each in node.decorator_list}


def parameters(node: Function) -> list[str]:
    """The parameters as they are written, without the first of a method."""
    args = node.args
    plain = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
    parts = [_parameter(arg, default) for arg, default in zip(plain, defaults, strict=True)]
    if args.posonlyargs:
        parts.insert(len(args.posonlyargs), "/")
    if args.vararg:
        parts.append(f"*{ast.unparse(args.vararg)}")
    elif args.kwonlyargs:
        parts.append("*")
    parts += [
        _parameter(arg, default)
        for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)
    ]
    if args.kwarg:
        parts.append(f"**{ast.unparse(args.kwarg)}")
    return [part for part in parts if part.split(":")[0] not in ("self", "cls")]


def _parameter(arg: ast.arg, default: ast.expr | None) -> str:
    if default is None:
        return ast.unparse(arg)
    return f"{ast.unparse(arg)}{' = ' if arg.annotation else '='}{ast.unparse(default)}"


def signature(name: str, node: Function, *, returns: bool = True) -> str:
    """A call's form in one line, or with a line for each parameter."""
    parts = parameters(node)
    end = f" -> {ast.unparse(node.returns)}" if node.returns and returns else ""
    lines = "".join(f"@{each}\n" for each in sorted(decorators(node) - {"overload"}))
    word = "async def " if isinstance(node, ast.AsyncFunctionDef) else "def "
    start = f"{lines}{word if returns else 'class '}{name}"
    line = f"{start}({', '.join(parts)}){end}"
    if len(line) - len(lines) <= 88:
        return line
    inside = "".join(f"    {part},\n" for part in parts)
    return f"{start}(\n{inside}){end}"


def overloads(module: str, node: Function) -> list[Function]:
    """The declared forms of a function: its overloads, or itself."""
    found = [
        each
        for each in tree(module).body
        if isinstance(each, Function) and each.name == node.name and "overload" in decorators(each)
    ]
    return found or [node]


def fields(node: ast.ClassDef) -> list[str]:
    """Rows for the public values of an object: declared fields and properties."""
    rows = []
    for each, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            meaning = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                meaning = " ".join(str(after.value.value).split())
            default = f" = {ast.unparse(each.value)}" if each.value else ""
            kind = ast.unparse(each.annotation).removeprefix("ClassVar[")
            rows.append((each.target.id, f"{kind}{default}", meaning))
        elif isinstance(each, Function) and "property" in decorators(each):
            kind = ast.unparse(each.returns) if each.returns else ""
            rows.append((each.name, kind, " ".join(text(each).split())))
        elif isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            name = each.targets[0].id
            if name.isupper():
                rows.append((name, ast.unparse(each.value), ""))
    rows = [row for row in rows if not row[0].startswith("_")]
    return [f"| `{name}` | {code(kind)} | {escape(more)} |" for name, kind, more in rows]


def code(value: str) -> str:
    """Code in a cell of a table."""
    return f"`{value}`".replace("|", "\\|") if value else ""


def escape(words: str) -> str:
    """Words in a cell of a table."""
    return words.replace("|", "\\|")


def only_promised(node: ast.ClassDef) -> ast.ClassDef:
    """A Context with what its part of docs/tools.md names; the rest is not promised."""
    manual = (SOURCE.parents[1] / "docs" / "tools.md").read_text()
    named = re.findall(r"\w+", manual.split("## The Context")[1].split("\n## ")[0])
    body = [each for each in node.body if getattr(each, "name", "") in named]
    return ast.ClassDef(**{**vars(node), "body": [node.body[0], *body]})


def class_part(node: ast.ClassDef) -> list[str]:
    """A class: how it is made, what it is, its values and its methods."""
    if node.name == "Context":
        node = only_promised(node)
    methods = [
        each
        for each in node.body
        if isinstance(each, Function) and not decorators(each) & {"overload", "property"}
    ]
    made = [each for each in methods if each.name == "__init__"]
    parts = [f"```py\n{signature(node.name, made[0], returns=False)}\n```"] if made else []
    parts.append(text(node))
    if rows := fields(node):
        parts.append("\n".join(["| value | type | meaning |", "|---|---|---|", *rows]))
    for each in methods:
        if not each.name.startswith("_"):
            parts += [f"#### {node.name}.{each.name}", text(each)]
            parts.append(f"```py\n{signature(each.name, each)}\n```")
    return parts


def part(module: str, name: str) -> list[str]:
    """All of one name."""
    node = find(module, name)
    if isinstance(node, ast.ClassDef):
        return [f"### {name}", *class_part(node)]
    forms = "\n".join(signature(name, each) for each in overloads(module, node))
    return [f"### {name}", f"```py\n{forms}\n```", text(node)]


def is_event(module: str, name: str) -> bool:
    """Whether a name is an event's, which has its own page."""
    node = find(module, name)
    bases = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
    return "Event" in bases


def integration_names(module: str) -> list[str]:
    """What a module for another framework has for its users."""
    return [
        node.name
        for node in tree(module).body
        if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_")
    ]


def page() -> str:
    """The whole page."""
    parts = [HEAD.rstrip(), "## The package toolrest"]
    for package, about in ABOUT.items():
        if about:
            parts += [f"## The package {package.__name__}", about]
        for name, home in sorted(homes(package).items()):
            parts += [] if is_event(home, name) else part(home, name)
    for name in INTEGRATIONS:
        module = f"toolrest.integrations.{name}"
        doc = ast.get_docstring(tree(module)) or ""
        parts += [f"## The module {module}", f"{doc} ([integrations](../integrations.md))"]
        for public in integration_names(module):
            parts += part(module, public)
    return "\n\n".join(each for each in parts if each) + "\n"
