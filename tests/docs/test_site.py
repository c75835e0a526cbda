"""The site has every page, its pictures are there, and its commands and programs can be read."""

from __future__ import annotations

import html
import itertools
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from release.make_site import loaded_from_elsewhere, navigation
from tests.docs.blocks import blocks, compiled
from tests.examples import test_commands, test_docs, test_walks
from tests.machine import REPOSITORY as ROOT

from toolrest import load_config
from toolrest.cli.app import app, with_chat

PAGES = [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md"]
# Where the programs and commands of a page are run; a page may be in several of these. NOT_RUN of
# these tests names what they leave out, and why. Of other languages, settings are loaded below;
# YAML, bash and Dockerfiles are not run: they need a cluster or a registry.
RUN_BY = {
    "tests/examples/test_walks.py": {f"docs/{page}" for page in test_walks.PAGES},
    "tests/examples/test_docs.py": {*test_docs.PAGES},
    "tests/examples/test_commands.py": {*test_commands.SHOWN},
    "tests/docs/test_fragments.py": {
        "docs/answering.md",
        "docs/approvals.md",
        "docs/library.md",
        "docs/mcp.md",
        "docs/reference/api.md",
    },
    "tests/integrations/cases/pages.py": {"docs/integrations.md"},
}


def with_blocks(*languages: str) -> set[str]:
    """The pages that have blocks in one of these languages."""
    names = [str(page.relative_to(ROOT)) for page in PAGES]
    return {name for name in names if any(blocks(name, language) for language in languages)}


def test_every_page_with_programs_or_commands_is_run() -> None:
    run = set().union(*RUN_BY.values())
    assert with_blocks("python", "console") == run
    shown = with_blocks("console")
    assert shown == RUN_BY["tests/examples/test_walks.py"] | {*test_commands.SHOWN}


def test_the_navigation_has_every_page_once() -> None:
    named = navigation()
    assert len(named) == len(set(named))
    assert [page for page in named if not (ROOT / page).exists()] == []
    assert {str(page.relative_to(ROOT)) for page in PAGES} <= set(named)


def test_every_picture_has_words() -> None:
    found = [
        (page.name, words)
        for page in PAGES
        for words in re.findall(r"!\[(.*?)\]", page.read_text())
    ]
    assert found
    assert [page for page, words in found if len(words) < 10] == []


def test_every_program_can_be_read() -> None:
    """They also run, as RUN_BY says; this finds in `make test` what is no Python at all."""
    found = [text for page in with_blocks("python") for text in blocks(page)]
    assert len(found) > 20
    for text in found:
        compiled(text)


def test_every_block_of_settings_is_one(tmp_path: Path) -> None:
    found = [text for page in with_blocks("toml") for text in blocks(page, "toml")]
    assert len(found) > 5
    for text in found:
        (tmp_path / "config.toml").write_text(text)
        assert load_config(home=tmp_path).warnings == (), text


def commands() -> list[str]:
    """Every call of our program in a console, as far as the shell hands it over."""
    shown = [line for page in with_blocks("console") for line in test_commands.commands(page)]
    starts = r"(?:^|[|;&(]\s*)toolrest(?: .*)?$"
    return sorted({found[0] for line in shown if (found := re.search(starts, line))})


def arguments(line: str) -> list[str]:
    """The words after our program's name in a line of shell, optional ones too."""
    reader = shlex.shlex(line[line.index("toolrest") + 8 :], posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    words = itertools.takewhile(lambda word: word not in ("|", "&&", ";", ">", ")"), reader)
    return [word if " " in word else word.strip("[]") for word in words]


@pytest.mark.parametrize("line", commands())
def test_a_shown_command_is_one(line: str) -> None:
    words = with_chat(arguments(line))
    command: click.Command = app
    context = click.Context(app, info_name="toolrest")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        if command.name == "batch" and not command.get_command(context, words[0]):
            words = ["run", *words]
        _, found, words = command.resolve_command(context, words)
        assert found is not None
        command, context = found, click.Context(found, parent=context, info_name=found.name)
    command.make_parser(context).parse_args(words)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_site_is_built_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    script = str(ROOT / "release" / "make_site.py")
    done = subprocess.run(
        [sys.executable, script, tmp_path / "out"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "out" / "site"
    built = {str(page.relative_to(site)) for page in site.rglob("*.html")}
    for page in navigation():
        name = "index" if page == "README.md" else page.removesuffix(".md")
        assert {f"{name}.html", f"{name.replace('README', 'index')}.html"} & built, page
    assert "examples/loops/openai_chat.py.html" in built
    assert 'href="../examples/loops/index.html"' in (site / "docs" / "library.html").read_text()
    reference = html.unescape((site / "docs" / "reference" / "api.html").read_text())
    assert "<code>str | None</code>" in reference
    (site / "more.html").write_text('<script src="https://example.com/a.js"></script>')
    assert loaded_from_elsewhere(site) == [str(site / "more.html")]
