"""Builds the documentation site: `make docs`, or `make_site.py FOLDER` for another folder.

The site's source is a copy of what GitHub shows, in the same folders, so that one set of links is
right in both. The site needs no network: no fonts, scripts or pictures from elsewhere.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "release" / "site"
FOLDERS = ("docs", "examples")
LINK = re.compile(r"\]\(([^)#:\s]+)\)")
ROW = re.compile(r"^\|.*\\\|.*$", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
LOADED = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//""")


def stage(folder: Path) -> None:
    """Copy the pages and the site's own files into a folder."""
    for name in ("src", "site"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / "src" / name)
    for page in ROOT.glob("*.md"):
        shutil.copy(page, folder / "src")
    shutil.copytree(SITE, folder / "src" / "assets")
    os.replace(folder / "src" / "assets" / "zensical.toml", folder / "zensical.toml")
    show_programs(folder / "src")


def show_programs(source: Path) -> None:
    """Make pages of programs and of folders, which GitHub shows by itself; links lead to them."""
    for program in source.rglob("*.py"):
        program.with_name(f"{program.name}.md").write_text(
            f"# {program.name}\n\n```python\n{program.read_text()}```\n"
        )
    for page in [*source.rglob("*.md")]:
        text = page.read_text()
        for target in set(LINK.findall(text)):
            text = text.replace(f"]({target})", f"]({shown(page, target)})")
        page.write_text(ROW.sub(lambda row: CODE.sub(bars, row[0]), text))


def bars(code: re.Match[str]) -> str:
    """Code in a row of a table; GitHub drops the backslash of an escaped bar, the site does not."""
    shown_as = html.escape(code[1]).replace("\\|", "&#124;")
    return f"<code>{shown_as}</code>"


def shown(page: Path, target: str) -> str:
    """Where a link of a page leads in the site."""
    place = page.parent / target
    if place.suffix == ".py" and place.is_file():
        return f"{target}.md"
    if not place.is_dir():
        return target
    index = place / "README.md"
    if not index.exists():
        names = sorted(str(path.relative_to(place)) for path in place.rglob("*.py"))
        lines = "".join(f"- [{name}]({name}.md)\n" for name in names)
        index.write_text(f"# {place.name}\n\n{lines}")
    return f"{target}/README.md"


def pages(nav: object) -> list[str]:
    """Every file that a navigation names, in order."""
    if isinstance(nav, str):
        return [nav]
    values = nav.values() if isinstance(nav, dict) else nav
    return [page for value in values for page in pages(value)]  # type: ignore[attr-defined]


def navigation() -> list[str]:
    """Every page of the site's navigation, by its path in the repository."""
    return pages(tomllib.loads((SITE / "zensical.toml").read_text())["project"]["nav"])


def loaded_from_elsewhere(site: Path) -> list[str]:
    """The pages that would make a browser ask another machine for something."""
    return [str(page) for page in site.rglob("*.html") if LOADED.search(page.read_text())]


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "docs").resolve()
    stage(folder)
    build = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(build, cwd=folder, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    if found := loaded_from_elsewhere(folder / "site"):
        sys.exit(f"these pages load something from elsewhere: {', '.join(found)}")
    print(f"{folder / 'site' / 'index.html'}")


if __name__ == "__main__":
    main()
