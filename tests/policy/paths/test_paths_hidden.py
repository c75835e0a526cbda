"""Hidden places: not read, not listed, not told of, under any spelling."""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.clock import assert_effort

from toolrest.errors import ConfigError, Rejected
from toolrest.policy.paths.hidden import (
    _PARTS,
    HiddenList,
    _translate,
    home_folders,
)

SECRETS = """
.ssh .aws .gnupg .kube .azure .oci .config/gh .config/glab-cli .config/hub .config/gcloud
.config/doctl .config/git/credentials .config/containers/auth.json .config/rclone .config/op
.config/sops .docker/config.json .netrc .npmrc .yarnrc.yml .pypirc .git-credentials
.cargo/credentials .cargo/credentials.toml .gem/credentials .m2/settings-security.xml
.terraform.d/credentials.tfrc.json .vault-token .databrickscfg .pgpass .my.cnf .mylogin.cnf .boto
.s3cfg .huggingface/token .cache/huggingface/token .codex/auth.json .claude/.credentials.json
.gemini/oauth_creds.json .qwen/oauth_creds.json .local/share/opencode/auth.json
.config/github-copilot .config/hcloud .config/wrangler .fly/config.yml .composer/auth.json
.config/composer/auth.json .authinfo .password-store .local/share/keyrings .local/share/kwalletd
.mozilla .thunderbird .config/google-chrome .config/chromium .config/BraveSoftware
.config/microsoft-edge Library/Keychains Library/Cookies
""".split()
BROWSERS = ("Google/Chrome", "Chromium", "BraveSoftware", "Microsoft Edge", "Firefox")
SECRETS += [f"Library/Application Support/{name}" for name in BROWSERS]


def test_every_built_in_place_is_hidden_whether_or_not_it_exists(places: Any) -> None:
    files = places.policy()
    for name in SECRETS:
        for path in (places.home / name, places.home / name / "deep" / "er"):
            assert f"~/{name}" in (files.read_denied(path) or "")
            with pytest.raises(Rejected):
                files.open_read(path)
            assert files.write_denied(path), name
    missing = {str(places.home / name) for name in SECRETS} - {*files.hidden_paths()}
    assert missing == set()


def test_neighbours_of_hidden_places_are_readable(places: Any) -> None:
    for name in (".ssh-notes", ".sshx", ".netrc.md", ".config"):
        (places.home / name).mkdir()
    files = places.policy()
    for name in (".ssh-notes", ".sshx", ".netrc.md", ".config", "."):
        assert files.read_denied(places.home / name) is None


def test_the_home_of_the_passwd_entry_and_of_the_variable_both_count(
    monkeypatch: pytest.MonkeyPatch, places: Any
) -> None:
    entry = SimpleNamespace(pw_dir="/home/of/the/entry")
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: entry)
    monkeypatch.setenv("HOME", str(places.home))
    assert home_folders() == (str(places.home), entry.pw_dir)
    files = places.policy(homes=None)
    assert files.read_denied(places.home / ".ssh" / "id")
    assert files.read_denied(f"{entry.pw_dir}/.aws/credentials")


def test_a_user_without_a_passwd_entry_still_has_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setenv("HOME", "/somewhere")
    assert home_folders() == ("/somewhere",)
    monkeypatch.setenv("HOME", "")
    assert home_folders() == ()


def test_a_credential_place_behind_a_symlink_is_hidden_by_both_names(places: Any) -> None:
    real = places.outside / "keys"
    real.mkdir()
    (real / "id").write_text("SECRET")
    (places.home / ".aws").symlink_to(real)
    files = places.policy()
    assert files.read_denied(real / "id")
    assert files.read_denied(places.home / ".aws" / "id")


def test_variables_that_name_credentials_hide_them(
    places: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = places.workspace / "service.json"
    key.write_text("SECRET")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    monkeypatch.setenv("KUBECONFIG", f"{places.outside}/k1:{places.outside}/k2")
    monkeypatch.setenv("GNUPGHOME", "/")
    files = places.policy()
    assert "$GOOGLE_APPLICATION_CREDENTIALS" in files.read_denied("service.json")
    assert "$KUBECONFIG" in files.read_denied(places.outside / "k2")
    assert files.read_denied("a.txt") is None  # a variable cannot hide the workspace itself


ENV_NAMES = [".env", ".env.local", ".env.production", ".envrc", ".ENV", ".env_secret", ".env.bak"]


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("folder", [".", "sub/deep"])
@pytest.mark.parametrize("name", ENV_NAMES)
def test_env_files_of_the_workspace_are_hidden(places: Any, folder: str, name: str) -> None:
    target = places.workspace / folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("SECRET=1")
    (places.workspace / "link").symlink_to(target)
    files = places.policy()
    for path in (target, "link", f"{folder}/x/../{name}"):
        with pytest.raises(Rejected, match=r"\.env\*"):
            files.read_bytes(path)
    assert name not in [entry for entry, _ in files.scan(target.parent)]
    assert files.write_denied(target)
    assert str(target) in files.hidden_paths()


@pytest.mark.parametrize("name", [".env.example", ".env.sample", ".env.template", ".env.dist"])
def test_templates_of_env_files_are_readable(places: Any, name: str) -> None:
    (places.workspace / name).write_text("KEY=")
    files = places.policy()
    assert files.read_bytes(name) == b"KEY="
    assert (name, "file") in files.scan(".")
    assert files.write_denied(name) is None


def test_env_files_elsewhere_follow_the_roots(places: Any) -> None:
    (places.outside / ".env").write_text("x")
    assert places.policy().read_denied(places.outside / ".env") is None
    assert places.policy(writable_roots=[places.outside]).read_denied(places.outside / ".env")
    assert places.policy(mode="read-only").read_denied(".env")


@pytest.mark.usefixtures("both_ways")
def test_an_env_file_that_is_a_link_hides_what_it_leads_to(places: Any) -> None:
    (places.outside / "settings").write_text("SECRET")
    (places.workspace / ".env").symlink_to(places.outside / "settings")
    (places.workspace / "second").symlink_to(".env")
    files = places.policy()
    for path in (".env", "second"):
        with pytest.raises(Rejected):
            files.read_bytes(path)


def test_a_new_env_file_may_be_made_but_not_overwritten(places: Any) -> None:
    files = places.policy()
    files.write_bytes(".env", b"A=1")
    with pytest.raises(Rejected):
        files.write_bytes(".env", b"A=2")
    assert (places.workspace / ".env").read_bytes() == b"A=1"


@pytest.mark.usefixtures("both_ways")
def test_toolrest_home_is_hidden_but_for_the_exceptions(places: Any) -> None:
    home = places.home / ".toolrest"
    spill = home / "spill" / "s1"
    other = home / "spill" / "s10"
    spill.mkdir(parents=True)
    other.mkdir()
    for folder in (spill, other, home):
        (folder / "f").write_text("x")
    (spill / "escape").symlink_to(other / "f")
    files = places.policy(exceptions=[spill])
    assert files.read_bytes(spill / "f") == b"x"
    assert files.scan(spill)
    for path in (home / "f", other / "f", spill / "escape", home, home / "config.toml"):
        assert "Toolrest's own home" in files.read_denied(path)
    for mode in ("workspace-write", "danger-full-access"):
        granted = places.policy(exceptions=[spill], mode=mode, writable_roots=[home])
        for path in (spill / "f", home / "config.toml", other / "f"):
            assert granted.write_denied(path)
    assert ".toolrest" not in [name for name, _ in files.scan(places.home)]


GLOBS = [
    ("*.pem", ["k.pem", "sub/k.pem", "sub/K.PEM", "x.pem/inner"], ["k.pem.txt", "pem"]),
    ("secrets/*.json", ["secrets/a.json"], ["secrets/sub/a.json", "other/secrets/a.json"]),
    ("secrets/**/*.json", ["secrets/a.json", "secrets/x/y/a.json"], ["secrets/a.txt"]),
    ("private/", ["private", "private/x"], ["private.txt"]),
    ("**/key?", ["key1", "a/b/keyZ"], ["key", "key12"]),
    ("[ab].txt", ["a.txt", "sub/b.txt"], ["c.txt"]),
    ("[!ab].txt", ["c.txt"], ["a.txt"]),
    ("we[ird", ["we[ird"], ["weird"]),
    ("a+b(c).txt", ["a+b(c).txt"], ["aab(c).txt"]),
    ("./top.txt", ["top.txt"], ["sub/top.txt"]),
]


@pytest.mark.parametrize(("glob", "hidden", "shown"), GLOBS)
def test_globs_of_the_user(places: Any, glob: str, hidden: list[str], shown: list[str]) -> None:
    files = places.policy(hidden=[glob])
    for path in hidden:
        assert f'"{glob}" in hidden_paths' in str(files.read_denied(path)), path
        assert files.write_denied(path)
    for path in shown:
        assert files.read_denied(path) is None, path


def test_globs_may_start_at_home_or_root_and_through_links(places: Any) -> None:
    (places.outside / "data").mkdir()
    (places.outside / "data" / "x.key").write_text("k")
    (places.workspace / "alias").symlink_to(places.outside)
    files = places.policy(hidden=["~/notes/*", f"{places.workspace}/alias/data/*.key"])
    assert files.read_denied(places.home / "notes" / "x")
    assert files.read_denied(places.outside / "data" / "x.key")
    assert files.read_denied("alias/data/x.key")
    assert files.read_denied(places.home / "notes2") is None


def test_the_users_globs_win_over_exceptions(places: Any) -> None:
    spill = places.home / ".toolrest" / "spill"
    spill.mkdir(parents=True)
    files = places.policy(exceptions=[spill], hidden=["*.key"])
    assert files.read_denied(spill / "x") is None
    assert files.read_denied(spill / "x.key")


@pytest.mark.parametrize("glob", ["[z-a]", "a**/b**/c"])
def test_a_broken_glob_is_a_config_error(places: Any, glob: str) -> None:
    with pytest.raises(ConfigError, match="hidden_paths"):
        places.policy(hidden=[glob])


@pytest.mark.parametrize(
    ("glob", "path"),
    [
        ("*a" * 20 + "*b", "a" * 255),
        ("x/" + "**/a/" * 20 + "b", "x" + "/a" * 1500),
        ("x/" + "**a" * 20 + "**b", "x" + "/aaa" * 800),
        ("x/a**/" + "**/*a*/" * 9 + "b", "x" + "/aaa" * 800),
    ],
)
def test_no_glob_takes_for_ever(places: Any, glob: str, path: str) -> None:
    files = places.policy(hidden=[glob])
    assert_effort(lambda: files.read_denied(path), below=500)


def means(glob: list[str], path: str) -> bool:
    """What a glob means, tried in every way."""
    if not glob:
        return path == "" or path.startswith("/")
    first, rest = glob[0], glob[1:]
    if first == "**/":
        ends = [at + 1 for at, char in enumerate(path) if char == "/"]
        return any(means(rest, path[end:]) for end in (0, *ends))
    if first in ("*", "**"):
        most = len(path) if first == "**" or "/" not in path else path.index("/")
        return any(means(rest, path[end:]) for end in range(most + 1))
    fits = path[:1] == first or (first == "?" and path[:1] not in ("", "/"))
    return fits and means(rest, path[1:])


@pytest.mark.slow
@settings(max_examples=500)
@given(
    st.lists(st.sampled_from(["a", "b", "/", "*", "**/", "**", "?"]), max_size=7),
    st.text("ab/", max_size=9),
)
def test_globs_mean_what_they_say(parts: list[str], path: str) -> None:
    glob = "".join(parts)
    assume("***" not in glob and [*_PARTS.findall(glob)] == parts)
    found = re.match(_translate(glob) + r"(?:/.*)?\Z", path)
    assert (found is not None) == means(parts, path)


@pytest.mark.usefixtures("both_ways")
def test_listing_shows_no_hidden_names(places: Any) -> None:
    for name in (".env", "x.pem", "visible"):
        (places.workspace / name).write_text("x")
    files = places.policy(hidden=["*.pem"])
    assert sorted(name for name, _ in files.scan(".")) == ["a.txt", "visible"]
    assert ".ssh" not in [name for name, _ in files.scan(places.home)]


@pytest.mark.usefixtures("both_ways")
def test_a_hard_link_of_a_hidden_file_is_hidden(places: Any) -> None:
    os.link(places.home / ".ssh" / "id", places.workspace / "alias")
    (places.workspace / "sub").mkdir()
    (places.workspace / "sub" / ".env").write_text("SECRET")
    os.link(places.workspace / "sub" / ".env", places.workspace / "harmless")
    os.link(places.workspace / "a.txt", places.workspace / "b.txt")
    files = places.policy()
    for path in ("alias", "harmless"):
        with pytest.raises(Rejected, match="hard link of a hidden file"):
            files.open_read(path)
    assert files.read_bytes("b.txt") == b"plain"


@pytest.mark.usefixtures("both_ways")
def test_existence_in_a_hidden_place_is_not_told(places: Any) -> None:
    files = places.policy()
    for name in ("id", "none"):
        (places.workspace / name).symlink_to(places.home / ".ssh" / name)
    for folder in (places.home / ".ssh", places.workspace):
        there, missing = (
            str(files.read_denied(folder / name)).replace(f"/{name}", "/NAME")
            for name in ("id", "none")
        )
        assert there == missing


def test_searching_for_hidden_files_is_bounded_and_skips_dependencies(places: Any) -> None:
    deep = places.workspace / "node_modules" / "x"
    deep.mkdir(parents=True)
    (deep / ".env").write_text("x")
    assert str(deep / ".env") not in places.policy().hidden_paths()
    assert_effort(lambda: list(places.policy(workspace="/")._hidden.found(1000)), below=350)


def test_case_and_invisible_characters_open_no_side_door(places: Any) -> None:
    files = places.policy()
    for name in (".SSH/id", ".Ssh/ID", ".s\u200csh/id"):
        assert files.read_denied(places.home / name), name
    for name in (".GIT/hooks/x", ".g\u200cit/config", ".Toolrest/config.toml", ".VSCODE/x"):
        assert files.write_denied(name), name


def test_paths_given_to_the_policy_may_be_links(places: Any) -> None:
    alias = places.outside / "alias"
    alias.symlink_to(places.workspace)
    (places.workspace / ".env").write_text("x")
    files = places.policy(workspace=alias)
    assert files.workspace == str(places.workspace)
    assert files.cwd == str(places.workspace)
    assert files.read_denied(alias / ".env")
    assert files.read_bytes(alias / "a.txt") == b"plain"
    assert isinstance(Path(files.workspace), Path)


def test_a_folder_that_cannot_be_searched_is_hidden_as_a_whole(places: Any) -> None:
    closed = places.workspace / "closed"
    closed.mkdir()
    (closed / ".env").write_text("SECRET")
    closed.chmod(0)
    try:
        found = list(places.policy().hidden_paths())
    finally:
        closed.chmod(0o755)
    wanted = closed if os.geteuid() != 0 else closed / ".env"
    assert str(wanted) in found


def test_a_link_that_is_called_env_hides_no_folder(places: Any) -> None:
    secret = places.outside / "app.env"
    secret.write_text("SECRET")
    (places.workspace / ".git").mkdir()
    for name, target in {
        ".env.root": "/",
        ".env.up": "..",
        ".env.git": ".git",
        ".env.loop": ".env.loop",
        ".env.proc": "/proc/1/root",
        ".env.file": str(secret),
        ".env.later": "later",
    }.items():
        (places.workspace / name).symlink_to(target)
    found = places.policy().hidden_paths()
    linked = {os.path.basename(path) for path in found if path.startswith(str(places.workspace))}
    assert linked == {".env.file", ".env.later"}


def test_a_root_that_cannot_be_searched_is_an_error(places: Any) -> None:
    places.workspace.chmod(0o300)
    try:
        if os.geteuid() == 0:
            return
        with pytest.raises(ConfigError, match="cannot be searched for hidden files"):
            places.policy().hidden_paths()
    finally:
        places.workspace.chmod(0o755)


def test_a_line_break_in_a_name_does_not_lead_out_of_a_hidden_folder() -> None:
    """Fails on trees in which `**` did not cross line breaks."""
    hidden = HiddenList(homes=("/home/u",), roots=("/w",), globs=("secrets/**", "/w/priv"))
    for path in ("/w/secrets/a\nb/c", "/w/secrets/\n", "/w/priv/a\nb"):
        assert hidden.hit(path) is not None, path
    assert hidden.hit("/w/secrets\n/a") is None, "another folder"
