"""Remembered answers: what is shown is what is stored is what matches."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.errors import ConfigError
from toolrest.gate.approval.grants import FILE, Grant, Grants, revoke, revoke_all, stored_grants
from toolrest.policy.grants.key import KINDS, GrantKey

WORDS = st.text(min_size=1, max_size=12)
KEYS = st.one_of(
    st.builds(
        GrantKey,
        st.just("run"),
        st.lists(WORDS, min_size=1, max_size=4).map(tuple),
        st.sampled_from(["", "/w", "/w/sub", "/other"]),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(
        GrantKey,
        st.sampled_from([kind for kind in KINDS if kind != "run"]),
        st.lists(WORDS, min_size=1, max_size=2).map(tuple),
        outside=st.booleans(),
    ),
)


@given(KEYS)
def test_a_key_is_stored_as_it_is(key: GrantKey) -> None:
    assert GrantKey.from_json(json.loads(json.dumps(key.to_json()))) == key


@given(KEYS, KEYS)
def test_two_keys_never_read_the_same(one: GrantKey, other: GrantKey) -> None:
    assert (one.sentence() == other.sentence()) == (one == other)


@given(KEYS)
def test_what_a_key_says_cannot_deceive(key: GrantKey) -> None:
    assert key.sentence().isprintable()


@given(KEYS, KEYS)
def test_a_stored_key_lets_through_what_it_says_and_nothing_else(
    key: GrantKey, need: GrantKey
) -> None:
    grants = Grants(None)
    grants.remember([key], "session")
    cwds = (key.root or "/anywhere",)
    assert grants.covering(key, cwds) is not None
    found = grants.covering(need, cwds)
    if found is None:
        return
    assert (key.kind, key.outside) == (need.kind, need.outside)
    if key.kind == "run" and not key.exact:
        assert need.words[: len(key.words)] == key.words
    else:
        assert need.words == key.words


def test_a_command_counts_in_its_folder_only() -> None:
    grants = Grants(None)
    grants.remember([GrantKey("run", ("make",), "/w")], "session")
    need = GrantKey("run", ("make", "x"))
    assert grants.covering(need, ("/w",))
    assert grants.covering(need, ("/w/sub", "/w"))
    assert not grants.covering(need, ("/w-evil",))
    assert not grants.covering(need, ("/w", "/tmp"))
    assert not grants.covering(need, ())


def test_all_keys_or_none_and_subsets_reuse() -> None:
    grants = Grants(None)
    a, b, c = (GrantKey("write", (f"/w/{name}",)) for name in "abc")
    grants.remember([a, b], "session")
    assert grants.covers_all([a, b])
    assert grants.covers_all([b])
    assert not grants.covers_all([a, c])
    assert not grants.covers_all([])


def test_projects_do_not_share_and_users_do(tmp_path: Path) -> None:
    home = str(tmp_path)
    key, everywhere = GrantKey("write", ("/w/a",)), GrantKey("connect", ("a.io",))
    Grants(home, project="/w").remember([key], "project", "apply_patch")
    Grants(home, project="/w").remember([everywhere], "user")
    assert Grants(home, project="/w").covers_all([key, everywhere])
    assert not Grants(home, project="/v").covering(key)
    assert Grants(home, project="/v").covering(everywhere)
    assert stat.S_IMODE(os.stat(tmp_path / FILE).st_mode) == 0o600


def test_revoking_ends_a_grant_at_once(tmp_path: Path) -> None:
    home = str(tmp_path)
    key, other = GrantKey("write", ("/w/a",)), GrantKey("write", ("/w/b",))
    session = Grants(home, project="/w")
    session.remember([key, other], "project")
    (grant,) = (grant for grant in stored_grants(home) if grant.key == key)
    assert session.covering(key)
    assert revoke(home, [grant.id[:6]]) == [grant]
    assert not session.covering(key)
    assert session.covering(other)
    with pytest.raises(ConfigError, match="no grant has"):
        revoke(home, [grant.id])
    assert [grant.key for grant in revoke_all(home)] == [other]
    assert stored_grants(home) == []


def test_the_same_yes_twice_is_kept_once(tmp_path: Path) -> None:
    key = GrantKey("write", ("/w/a",))
    for _ in range(2):
        Grants(str(tmp_path), project="/w").remember([key], "project")
    assert len(stored_grants(str(tmp_path))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"version": 2, "grants": []}',
        '{"version": 1, "grants": [{}]}',
        '{"version": 1, "grants": [{"key": {"kind": "write", "words": []}, "scope": "user"}]}',
        "[" * 100_000,
    ],
)
def test_a_file_that_is_none_of_ours_grants_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    (tmp_path / FILE).chmod(0o600)
    grants = Grants(str(tmp_path), project="/w")
    assert grants.listed() == []
    assert grants.problem
    assert FILE in grants.problem
    with pytest.raises(ConfigError, match=FILE):
        grants.remember([GrantKey("write", ("/w/a",))], "user")
    assert (tmp_path / FILE).read_text() == text


def test_what_others_can_write_grants_nothing(tmp_path: Path) -> None:
    grants = Grants(str(tmp_path), project="/w")
    key = GrantKey("write", ("/w/a",))
    grants.remember([key], "user")
    (tmp_path / FILE).chmod(0o666)
    assert not Grants(str(tmp_path), project="/w").covering(key)
    (tmp_path / FILE).rename(tmp_path / "elsewhere.json")
    (tmp_path / "elsewhere.json").chmod(0o600)
    (tmp_path / FILE).symlink_to(tmp_path / "elsewhere.json")
    assert not Grants(str(tmp_path), project="/w").covering(key)


def test_a_stored_grant_of_a_session_or_of_another_shape_is_refused() -> None:
    good = Grant(GrantKey("write", ("/a",)), "user").to_json()
    assert Grant.from_json(good).key.words == ("/a",)
    for bad in (
        {"scope": "session"},
        {"project": "/w"},
        {"created": "now"},
        {"key": {**good["key"], "extra": 1}},
        {"key": {**good["key"], "outside": "yes"}},
    ):
        with pytest.raises(ValueError, match=r"."):
            Grant.from_json(good | bad)


REMEMBER = """
import sys
from toolrest.gate.approval.grants import Grants
from toolrest.policy.grants.key import GrantKey
for n in range(5):
    Grants(sys.argv[1]).remember([GrantKey("write", (f"/w/{sys.argv[2]}/{n}",))], "user")
"""


def test_writers_in_several_processes_lose_nothing(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", REMEMBER, str(tmp_path)]
    workers = [subprocess.Popen([*argv, str(number)]) for number in range(3)]
    assert [worker.wait(60) for worker in workers] == [0, 0, 0]
    assert len(stored_grants(str(tmp_path))) == 15


def test_the_first_key_counts_as_much_as_the_last() -> None:
    grants = Grants(None)
    known, other = GrantKey("write", ("/w/a",)), GrantKey("write", ("/w/b",))
    grants.remember([known], "session")
    assert grants.covers_all([known]) is not None
    assert grants.covers_all([other, known]) is None


def test_a_command_counts_for_its_program_and_its_words_only() -> None:
    need = GrantKey("run", ("make", "all"), program="/usr/bin/make")
    assert GrantKey("run", ("make",), program="/usr/bin/make").covers(need)
    assert not GrantKey("run", ("make",), program="/w/bin/make").covers(need)
    assert not GrantKey("run", ("make",), exact=True, program="/usr/bin/make").covers(need)
