"""Hosts that a command connects to, as far as its words name them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from toolrest.policy.commands.git import git_command
from toolrest.policy.commands.options import Options, read_options
from toolrest.policy.shell.place import Touch, WorkingDirs
from toolrest.policy.shell.script import Simple
from toolrest.policy.shell.words import wordset

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^@/?#]*@)?(\[[0-9A-Fa-f:.]+\]|[^/:?#\[\]]+)")
_REMOTE = re.compile(r"(?:[^@/:\s]+@)?([A-Za-z0-9][A-Za-z0-9._-]*):(?!//)")
_HOST = re.compile(r"(?:[^@/\s]+@)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_][A-Za-z0-9_.-]*)(?:[:/?].*)?")
_LOOPBACK = re.compile(r"localhost|.*\.localhost|127(?:\.\d+){1,3}|\[?::1\]?|0\.0\.0\.0")


def is_loopback(host: str) -> bool:
    """True for names of this very machine, which the sandbox keeps to itself."""
    return _LOOPBACK.fullmatch(host.lower()) is not None


def url_host(text: str) -> str:
    """The host of a URL, or nothing."""
    match = _URL.match(text)
    return match[1].strip("[]").lower() if match else ""


_SENDERS = wordset(
    "curl wget http https xh ssh scp sftp rsync nc ncat netcat socat telnet ftp lftp tftp mail"
    " sendmail gh glab hub aws gcloud gsutil az rclone kubectl helm docker podman twine"
)
_SENDING = {
    "git": wordset("push fetch pull clone remote ls-remote send-email submodule"),
    "npm": wordset("publish"),
    "pnpm": wordset("publish"),
    "yarn": wordset("publish npm"),
    "uv": wordset("publish"),
    "cargo": wordset("publish"),
    "poetry": wordset("publish"),
}


def senders_in(commands: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Programs whose business is to talk to other machines, also where no host can be read."""
    found: dict[str, None] = {}
    for argv in commands:
        name = argv[0].rpartition("/")[2] if argv else ""
        if name in _SENDERS or not _SENDING.get(name, frozenset()).isdisjoint(argv[1:]):
            found[f"whatever {name} talks to"] = None
    return tuple(found)


def _add(touch: Touch, host: str) -> None:
    if host:
        touch.connects.append(host)
    else:
        touch.sure = False


_CURL_TAKES = "ACDEFHKPQTUXYbcdehmortuwxyz"
_CURL_FLAGS = wordset(
    "--silent --show-error --location --fail --fail-with-body --head --include --insecure --get"
    " --compressed --verbose --remote-name --http1.1 --http2 --ipv4 --ipv6 --globoff --no-buffer"
    " --create-dirs --remote-header-name --progress-bar --no-progress-meter --tcp-nodelay"
)
_CURL_LONGS = wordset(
    "--output --header --request --data --data-raw --data-binary --data-urlencode --form --user"
    " --user-agent --referer --max-time --connect-timeout --retry --retry-delay --write-out"
    " --cookie --url --json --range --output-dir --max-redirs --limit-rate"
)


def _curl(simple: Simple, place: WorkingDirs) -> Touch:
    options = read_options(simple.argv, _CURL_TAKES, _CURL_LONGS)
    known = _CURL_FLAGS | _CURL_LONGS
    found = Touch(
        sure=simple.literal
        and not options.has("K", "x", "E", "T", "c", "D")
        and all(flag in known for flag in options.flags if flag.startswith("--"))
    )
    urls = [simple.argv[index] for index in options.operands]
    for url in [*urls, *options.values.get("--url", [])]:
        match = _HOST.fullmatch(url)
        _add(found, url_host(url) or (match[1].lower() if match else ""))
    for target in options.values.get("o", []) + options.values.get("--output", []):
        found.writes += place.paths(target) if target != "-" else ()
    if options.has("O", "--remote-name"):
        found.writes += _by_url(urls, place)
    for name in ("d", "--data", "--data-binary", "F", "--form", "--json"):
        for value in options.values.get(name, []):
            _reads_file(value, found, place)
    return found


def _reads_file(value: str, found: Touch, place: WorkingDirs) -> None:
    _, at, path = value.partition("@")
    if at and path not in ("", "-"):
        found.reads += place.paths(path.partition(";")[0])


def _by_url(urls: list[str], place: WorkingDirs) -> list[str]:
    names = [url.partition("?")[0].rstrip("/").rpartition("/")[2] for url in urls]
    return [path for name in names if name for path in place.paths(name)]


_WGET_LONGS = wordset(
    "--output-document --directory-prefix --header --timeout --tries --user-agent --post-data"
    " --quota --wait --limit-rate --level --accept --reject"
)
_WGET_FLAGS = _WGET_LONGS | wordset(
    "--quiet --no-verbose --continue --no-check-certificate --show-progress --spider"
    " --content-disposition --timestamping --verbose"
)


def _wget(simple: Simple, place: WorkingDirs) -> Touch:
    options = read_options(simple.argv, "aoeiBtTwQOUPlARDIX", _WGET_LONGS)
    found = Touch(
        sure=simple.literal
        and not options.has("e", "i", "a", "o", "r", "m", "p")
        and all(flag in _WGET_FLAGS for flag in options.flags if flag.startswith("--"))
    )
    urls = [simple.argv[index] for index in options.operands]
    for url in urls:
        match = _HOST.fullmatch(url)
        _add(found, url_host(url) or (match[1].lower() if match else ""))
    target = options.value("O", "--output-document")
    if target is None:
        found.writes += _by_url(urls, place) or list(place.cwds)
    elif target != "-":
        found.writes += place.paths(target)
    return found


def _git(simple: Simple, place: WorkingDirs) -> Touch | None:
    start = git_command(simple.argv)
    verb = simple.argv[start : start + 1]
    if verb == ("init",):
        return _git_init(simple, place, start)
    if verb not in _GIT_NETWORK:
        return None
    found = Touch()
    for word in simple.argv[start + 1 :]:
        host = url_host(word)
        if not host and not word.startswith("-"):
            match = _REMOTE.match(word)
            host = match[1].lower() if match and "/" in word else ""
        if host:
            found.connects.append(host)
            break
    return found


def _git_init(simple: Simple, place: WorkingDirs, start: int) -> Touch:
    """A new repository writes its `.git`; a bare one is an ordinary folder."""
    takes = wordset("--template --separate-git-dir --object-format --ref-format --initial-branch")
    options = read_options(simple.argv[start:], "b", takes)
    found = Touch()
    if options.has("--bare"):
        return found
    before = simple.argv[1:start]
    folder = next((after for word, after in pairwise(before) if word == "-C"), "")
    for index in options.operands[:1]:
        folder = posixpath.join(folder, simple.argv[start + index])
    found.writes += place.paths(posixpath.join(folder, ".git"))
    return found


_GIT_NETWORK = {(verb,) for verb in ("clone", "fetch", "pull", "push", "ls-remote", "submodule")}


def _first_operand(takes: str) -> Callable[[Simple, WorkingDirs], Touch]:
    """Commands whose first operand is the host."""

    def touch(simple: Simple, place: WorkingDirs) -> Touch:
        options: Options = read_options(simple.argv, takes, stop=True)
        found = Touch()
        for index in options.operands[:1]:
            match = _HOST.fullmatch(simple.argv[index])
            if match and not simple.mark(index):
                found.connects.append(match[1].strip("[]").lower())
        return found

    return touch


def _remotes(takes: str) -> Callable[[Simple, WorkingDirs], Touch]:
    """Commands whose operands may be `host:path`."""

    def touch(simple: Simple, place: WorkingDirs) -> Touch:
        found = Touch()
        for index in read_options(simple.argv, takes).operands:
            word = simple.argv[index]
            match = _REMOTE.match(word)
            host = url_host(word) or (match[1].lower() if match else "")
            if host:
                found.connects.append(host)
        return found

    return touch


def _named(simple: Simple, place: WorkingDirs) -> Touch:
    found = Touch()
    for word in simple.argv[1:]:
        host = url_host(word)
        if host:
            found.connects.append(host)
    return found


NET_TOUCHES: dict[str, Callable[[Simple, WorkingDirs], Touch | None]] = {
    "curl": _curl,
    "wget": _wget,
    "git": _git,
    "ssh": _first_operand("BbcDEeFIiJLlmOopPQRSWw"),
    "sftp": _first_operand("BbcDFiJloPRSs"),
    "telnet": _first_operand("lSX"),
    **dict.fromkeys(wordset("nc ncat netcat"), _first_operand("pswiqgGIlmoTVXxec")),
    **dict.fromkeys(wordset("ping ping6 tracepath traceroute"), _first_operand("cIiWwstQmlpM")),
    **dict.fromkeys(wordset("nslookup host dig whois"), _first_operand("ctTNRWmpqbfky")),
    "scp": _remotes("cDFiJloPSX"),
    "rsync": _remotes("efTBM"),
    **dict.fromkeys(wordset("pip pip3 npm pnpm yarn uv cargo go http https aria2c"), _named),
}
