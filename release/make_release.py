"""Build a release into dist/, check it as users install it, and say how to publish it.

`make release` runs this; it changes no file but those in dist/, and publishes nothing. Every check
is in a folder of its own that is gone afterwards. Programs that are not here (uv, pipx,
cyclonedx-py) are installed into such a folder from the package index, by name.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

import toolrest  # noqa: E402

VERSION = toolrest.__version__
DIST = ROOT / "dist"
WHEEL = DIST / f"toolrest-{VERSION}-py3-none-any.whl"
SOURCE = DIST / f"toolrest-{VERSION}.tar.gz"
BOM = DIST / f"toolrest-{VERSION}.cdx.json"
CHANGES = DIST / f"CHANGES-{VERSION}.md"
FORMULA = DIST / "toolrest.rb"
NEVER_SHIPPED = re.compile(r"(^|/)(tests|bench)/|busybox|vmlinu|bzImage|\.(so|ko|exe|dll)$")


class Failed(SystemExit):
    """A release that is not one; the message says why."""


def main() -> None:
    """Make the release; with `--dirty` also of an unreleased version, or with changes."""
    check_checkout(allow_changes="--dirty" in sys.argv[1:])
    build()
    check_contents()
    with tempfile.TemporaryDirectory(prefix="toolrest-release-") as made:
        scratch = Path(made)
        for name, check in checks(scratch):
            say(f"checking: {name}")
            check()
        write_bom(scratch)
    CHANGES.write_text(changes())
    write_formula()
    write_hashes([SOURCE, WHEEL, BOM, CHANGES, FORMULA])
    files = " ".join(str(path.relative_to(ROOT)) for path in (SOURCE, WHEEL))
    say(f"{VERSION} is in {DIST.relative_to(ROOT)}/. These two commands publish it:")
    print(f"  git tag -a v{VERSION} --cleanup=whitespace -F dist/{CHANGES.name}")
    print(f"  git push origin v{VERSION}    # the workflow release.yml builds and publishes it")
    say("Without that workflow, instead of the second one:")
    print(f"  .venv/bin/uv publish {files} && git push origin v{VERSION}")


def say(text: str) -> None:
    print(text, flush=True)


def run(*command: str | Path, **variables: str) -> str:
    """The output of a program; Failed with all of it when it ends with an error."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        env={**os.environ, **indexes(), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def indexes() -> dict[str, str]:
    """The package indexes of pip's settings, for uv, which does not read those."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True
    ).stdout
    found = dict(re.findall(r"\.([\w-]+)='(.*)'", listed))
    names = {
        "index-url": "UV_DEFAULT_INDEX",
        "extra-index-url": "UV_INDEX",
        "find-links": "UV_FIND_LINKS",
    }
    return {names[key]: value for key, value in found.items() if key in names} | {
        "UV_INDEX_STRATEGY": "unsafe-best-match"  # as pip does
    }


# The files


def check_checkout(*, allow_changes: bool) -> None:
    """Raise Failed unless the version has its section in the changelog and all is committed."""
    heading = re.search(r"^## (\S+)(.*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if heading is None or heading[1] != VERSION:
        raise Failed(f"the first section of CHANGELOG.md is not ## {VERSION}, the __version__")
    if "unreleased" in heading[2] and not allow_changes:
        raise Failed(f"CHANGELOG.md says that {VERSION} is unreleased; write its date, or --dirty")
    if run("git", "status", "--porcelain").strip() and not allow_changes:
        raise Failed("there are changes that are not committed; commit them, or say --dirty")


def build() -> None:
    """Build source and wheel; the same commit gives the same bytes."""
    say(f"building {VERSION}")
    for old in DIST.glob("*"):
        old.unlink()
    epoch = run("git", "log", "-1", "--format=%ct").strip()
    made = ("--no-isolation", "--outdir", str(DIST), str(ROOT))
    run(sys.executable, "-m", "build", *made, SOURCE_DATE_EPOCH=epoch)


def check_contents() -> None:
    """Raise Failed for files that must, or must not, be in the wheel."""
    with zipfile.ZipFile(WHEEL) as wheel:
        names = wheel.namelist()
        programs = [name for name in names if wheel.read(name)[:4] == b"\x7fELF"]
    strange = [name for name in names if NEVER_SHIPPED.search(name)] + programs
    if strange:
        raise Failed(f"the wheel holds what is never shipped: {', '.join(strange)}")
    for wanted in ("LICENSE", "THIRD_PARTY_NOTICES.md", "py.typed"):
        if not any(name.endswith(wanted) for name in names):
            raise Failed(f"the wheel lacks {wanted}")
    with tarfile.open(SOURCE) as source:
        inside = {name.partition("/")[2] for name in source.getnames()}
    for wanted in ("Makefile", "tests/conftest.py", "docs/security.md"):
        if wanted not in inside:
            raise Failed(f"the source lacks {wanted}")


def changes() -> str:
    """The changelog's section of this version, and the commits since the last tag."""
    text = (ROOT / "CHANGELOG.md").read_text()
    section = text.split("\n## ")[1].partition("\n")[2].strip()
    tag = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0", "--exclude", f"v{VERSION}"],
        cwd=ROOT, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    log = run("git", "log", "--no-merges", "--format=- %s", f"{tag}..HEAD" if tag else "HEAD")
    since = f"since {tag}" if tag else "of this first release"
    return f"# Toolrest {VERSION}\n\n{section}\n\n## Commits {since}\n\n{log}"


def write_formula() -> None:
    """The Homebrew formula with this version's hash."""
    text = (ROOT / "release" / "toolrest.rb").read_text()
    FORMULA.write_text(text.replace("VERSION", VERSION).replace("SHA256", digest(SOURCE)))


def write_hashes(paths: Iterable[Path]) -> None:
    """SHA256SUMS, which `sha256sum -c` reads."""
    lines = [f"{digest(path)}  {path.name}\n" for path in paths]
    (DIST / "SHA256SUMS").write_text("".join(lines))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# The checks, as users install it


def checks(scratch: Path) -> list[tuple[str, Callable[[], None]]]:
    """Every way to install it, with the check of what it installed."""
    return [
        ("pip, the wheel", partial(with_pip, scratch / "pip", WHEEL)),
        ("pip, by name with all extras", partial(with_extras, scratch / "all")),
        ("pip, the source", partial(with_pip, scratch / "source", SOURCE)),
        ("uv pip", partial(with_uv, scratch)),
        ("uvx", partial(with_uvx, scratch)),
        ("pipx", partial(with_pipx, scratch)),
    ]


def with_pip(venv: Path, package: Path) -> None:
    run(sys.executable, "-m", "venv", venv)
    run(venv / "bin" / "pip", "install", "-q", package)
    check_installed(venv / "bin", has_extras=False)


def with_extras(venv: Path) -> None:
    """By name: the bill of materials of this venv would write a file's own path down."""
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    wanted = ("--find-links", str(DIST), f"toolrest[all]=={VERSION}")
    python = venv / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", *wanted)
    check_installed(venv / "bin", has_extras=True)


def with_uv(scratch: Path) -> None:
    uv, venv = program("uv", scratch), scratch / "by-uv"
    run(uv, "venv", "-q", "--python", sys.executable, venv)
    run(uv, "pip", "install", "-q", "--python", venv / "bin" / "python", WHEEL)
    check_installed(venv / "bin", has_extras=False)


def with_uvx(scratch: Path) -> None:
    folders = {"UV_TOOL_DIR": str(scratch / "uvx"), "UV_PYTHON": sys.executable}
    uv = program("uv", scratch)
    check_version(run(uv, "tool", "run", "-q", "--from", WHEEL, "toolrest", "--version", **folders))


def with_pipx(scratch: Path) -> None:
    home, programs = str(scratch / "pipx"), str(scratch / "pipx-bin")
    pipx = program("pipx", scratch)
    run(pipx, "install", WHEEL, PIPX_HOME=home, PIPX_BIN_DIR=programs, PIPX_MAN_DIR=home)
    check_version(run(Path(programs) / "toolrest", "--version"))


def check_installed(programs: Path, *, has_extras: bool) -> None:
    """Raise Failed unless the commands work as they should, with or without extras."""
    home = {"TOOLREST_HOME": tempfile.mkdtemp(dir=programs.parent)}
    check_version(run(programs / "toolrest", "--version", **home))
    run(programs / "toolrest", "demo", **home)
    listed = subprocess.run(
        [programs / "toolrest", "mcp", "serve", "--help" if has_extras else "--http", "0"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **home},
    )
    wants = "pip install 'toolrest[mcp]'" in listed.stderr
    if wants is has_extras:
        raise Failed(f"mcp serve, with extras {has_extras}:\n{listed.stdout}{listed.stderr}")
    run(programs / "python", "-I", "-c", "import toolrest; from toolrest import Agent, Sandbox")


def check_version(said: str) -> None:
    if said.split() != ["toolrest", VERSION]:
        raise Failed(f"it says {said!r}, not version {VERSION}")


def program(name: str, scratch: Path, package: str = "") -> Path:
    """A program of this machine or of our own environment, or one that is installed now."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found:
        return Path(found)
    venv = scratch / f"program-{name}"
    run(sys.executable, "-m", "venv", venv)
    run(venv / "bin" / "pip", "install", "-q", package or name)
    return venv / "bin" / name


def write_bom(scratch: Path) -> None:
    """The software bill of materials of an installation with all extras, as CycloneDX JSON."""
    say("writing the software bill of materials")
    python = scratch / "all" / "bin" / "python"
    tool = program("cyclonedx-py", scratch, "cyclonedx-bom")
    run(tool, "environment", python, "--output-reproducible", "--of", "JSON", "-o", BOM)
    text = BOM.read_text()
    names = {component["name"] for component in json.loads(text)["components"]}
    if not names >= {"toolrest", "pydantic", "mcp"} or str(ROOT) in text:
        raise Failed(f"{BOM.name} lacks packages, or names folders of this machine")


if __name__ == "__main__":
    main()
