"""Random tangles of links and spellings: never a secret read, never a write outside."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.errors import Rejected
from toolrest.policy.paths import locate
from toolrest.policy.paths.policy import PathPolicy

NAMES = ("a", "b", "c", "d", "sub", "sub/x", "sub/y")
PIECES = ("a", "b", "c", "d", "sub", "x", "y", "..", ".", "id", ".env", "ok", "%home", "%work")
TARGETS = (
    "%work",
    "%work/sub",
    "%work/.env",
    "%work/ok",
    "%home",
    "%home/.ssh",
    "%home/.ssh/id",
    "%home/.ssh/new",
    "%outside",
    "%outside/new",
    "%outside/o",
    "/",
    "/proc/self/root",
    "/proc/self/cwd",
    "//etc/..",
    ".",
    "..",
    "sub",
    "../a",
    "../.env",
    "a",
    "b",
    "c/x",
)


def build(base: Path, links: dict[str, str]) -> dict[str, str]:
    shutil.rmtree(base, ignore_errors=True)
    roots = {f"%{name}": str(base / name) for name in ("work", "home", "outside")}
    for folder in ("work/sub", "home/.ssh", "outside"):
        (base / folder).mkdir(parents=True)
    (base / "home/.ssh/id").write_text("SECRET")
    (base / "work/.env").write_text("SECRET")
    (base / "work/ok").write_text("fine")
    (base / "outside/o").write_text("outside")
    for name, target in links.items():
        for key, value in roots.items():
            target = target.replace(key, value)
        (base / "work" / name).symlink_to(target)
    return roots


@pytest.mark.slow
@pytest.mark.parametrize("way", ["kernel", "walk"])
@given(
    links=st.dictionaries(st.sampled_from(NAMES[:4] + NAMES[5:]), st.sampled_from(TARGETS)),
    spelling=st.lists(st.sampled_from(PIECES), min_size=1, max_size=6),
    absolute=st.booleans(),
)
def test_no_tangle_of_links_leads_out(
    tmp_path_factory: pytest.TempPathFactory,
    way: str,
    links: dict[str, str],
    spelling: list[str],
    absolute: bool,
) -> None:
    base = tmp_path_factory.getbasetemp() / f"tangle-{way}"
    roots = build(base, links)
    path = "/".join(roots.get(piece, piece) for piece in spelling)
    if absolute:
        path = f"{roots['%work']}/{path}"
    with pytest.MonkeyPatch.context() as patch:
        if way == "walk":
            patch.setattr(locate, "tells_paths", lambda: False)
        files = PathPolicy(
            roots["%work"], homes=[roots["%home"]], toolrest_home=base / "home/.toolrest"
        )
        with contextlib.suppress(Rejected, OSError):
            assert files.read_bytes(path) in (b"fine", b"outside")
            assert files.read_denied(path) is None
        with contextlib.suppress(Rejected, OSError):
            assert not {"id", ".env"} & {name for name, _ in files.scan(path)}
        with contextlib.suppress(Rejected, OSError):
            files.write_bytes(path, b"WRITTEN")
            assert files.write_denied(path) is None or os.path.basename(path).startswith(".env")
    assert (base / "home/.ssh/id").read_text() == "SECRET"
    assert (base / "work/.env").read_text() == "SECRET"
    assert os.listdir(base / "outside") == ["o"]
    assert (base / "outside/o").read_text() == "outside"
    assert os.listdir(base / "home/.ssh") == ["id"]


@given(st.text(st.characters(exclude_categories=()), max_size=30))
def test_any_text_gets_an_answer(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    missing = tmp_path_factory.getbasetemp() / "not" / "there"
    files = PathPolicy(missing / "at/all", homes=["/h"], toolrest_home="/t", mode="read-only")
    for answer in (files.read_denied(text), files.write_denied(text)):
        assert answer is None or answer
    for call in (files.open_dir, files.read_bytes):
        with pytest.raises((Rejected, OSError)):
            call(f"{missing}/{text}")
