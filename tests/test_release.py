"""What a release brings along: notices of all packages, a version with its section."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import toolrest

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, GROUPS = PYPROJECT["project"], PYPROJECT["dependency-groups"]


def test_the_notices_name_every_package() -> None:
    notices = (ROOT / "THIRD_PARTY_NOTICES.md").read_text()
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(line for group in extras.values() for line in group)]
    names = {re.match(r"[\w-]+", line)[0] for line in lines} - {"toolrest"}  # type: ignore[index]
    listed = set(re.findall(r"^\| ([\w-]+)", notices, re.MULTILINE)) - {"package"}
    assert listed == names


def test_the_version_has_the_first_section_of_the_changelog() -> None:
    first = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None
    assert first[1] == toolrest.__version__


def test_the_classifiers_name_the_pythons_that_the_workflow_runs() -> None:
    named = {
        line.rpartition(" ")[2] for line in PROJECT["classifiers"] if ":: Python :: 3." in line
    }
    workflow = (ROOT / ".github/workflows/test.yml").read_text()
    run = re.search(r"python: \[(.+)\]", workflow)
    assert run is not None
    assert set(re.findall(r"[\d.]+", run[1])) == named == {"3.11", "3.12", "3.13", "3.14"}


def test_the_first_sentence_of_contributing_works_after_make_install(tmp_path: Path) -> None:
    done = subprocess.run(
        ["make", "-n", "install", f"VENV={tmp_path}/venv"], cwd=ROOT, capture_output=True, text=True
    )
    assert "--group dev" in done.stdout, done.stderr
    assert any(line.startswith("pytest") for line in GROUPS["dev"] if isinstance(line, str))
    assert (
        "`make install`" in (ROOT / "CONTRIBUTING.md").read_text().partition(".venv/bin/pytest")[0]
    )


def test_notes_of_a_tagged_version_begin_at_the_tag_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = toolrest.__version__
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {version} (unreleased)\n\n- All.\n")
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org")
    for words in (
        ("init", "-q"), ("add", "."), ("commit", "-qm", "first"), ("tag", "v0.0.1"),
        ("commit", "-qm", "second", "--allow-empty"), ("tag", f"v{version}"),
    ):  # fmt: skip
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    monkeypatch.syspath_prepend(ROOT / "release")
    release = importlib.import_module("make_release")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    assert release.changes().endswith("## Commits since v0.0.1\n\n- second\n")
    with pytest.raises(release.Failed, match="unreleased"):
        release.check_checkout(allow_changes=False)


def test_the_image_and_the_formula_are_of_what_is_built() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert "COPY dist/toolrest-*-py3-none-any.whl" in dockerfile
    assert 'ENTRYPOINT ["toolrest"]' in dockerfile
    assert re.search(r"^USER (?!root)", dockerfile, re.MULTILINE)
    formula = (ROOT / "release" / "toolrest.rb").read_text()
    assert "toolrest-VERSION.tar.gz" in formula
    assert f'license "{PROJECT["license"]}"' in formula
    assert "make release" in (ROOT / ".github/workflows/release.yml").read_text()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_build_has_what_it_must_and_nothing_else(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True)
    [wheel], [source] = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert not [name for name in names if archive.read(name)[:4] == b"\x7fELF"]
    assert {name.split("/")[0] for name in names} == {
        "toolrest",
        f"toolrest-{toolrest.__version__}.dist-info",
    }
    assert any(name.endswith("licenses/THIRD_PARTY_NOTICES.md") for name in names)
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"Makefile", "tests/conftest.py", "docs/security.md"} <= inside
    assert not [name for name in inside if name.startswith((".venv", "dist", ".git/"))]
