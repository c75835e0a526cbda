"""Dangerous things that only several commands do together.

A download that is run, a secret that is sent away, a shell that is handed to the network, a
function that calls itself without end.
"""

from __future__ import annotations

import re

from toolrest.policy.commands.options import read_options
from toolrest.policy.dangerous.targets import Danger
from toolrest.policy.shell.nested import OTHER_SHELLS, SHELLS
from toolrest.policy.shell.script import Function, Script, Simple
from toolrest.policy.shell.words import wordset

_DOWNLOADS = wordset("curl wget http https aria2c fetch lwp-download nc ncat netcat socat lynx")
_SENDS = _DOWNLOADS | wordset(
    "ssh scp sftp rsync ftp lftp telnet mail mailx sendmail mutt rclone gsutil aws curlie xh"
)
_OTHER_INTERPRETERS = wordset(
    "python python2 python3 pypy pypy3 perl ruby node nodejs php lua bun deno tclsh osascript"
    " Rscript"
)
_RUNS_TEXT = wordset("eval source .")
_INLINE = wordset("-c -e -E -m -p -r --eval --print -S")
_SECRETS = re.compile(
    r"(?:^|[/@=~'\"])(?:\.ssh(?:/|$)|id_(?:rsa|dsa|ecdsa|ed25519)\b|\.aws/|\.gnupg\b|\.netrc\b"
    r"|\.git-credentials\b|\.npmrc\b|\.pypirc\b|\.docker/config\.json|\.kube/config"
    r"|\.config/(?:gcloud|gh|hub)\b|\.env(?:\.\w+)?$|\.password-store|\.vault-token|\.pgpass"
    r"|\.(?:bash|zsh|python|psql|mysql|node_repl)_history\b)"
    r"|(?:^|[@=])(?:/etc/(?:shadow|gshadow|sudoers)|/proc/[^/]+/environ)|\.(?:pem|p12|pfx|kdbx)$"
)
_DESCRIPTOR = re.compile(r"/dev/stdin|(?:/dev|/proc/self)/fd/\d+")
_CURL_KEYS = wordset("-E --key --cert --cacert --netrc-file -K --config")
_SSH_KEYS = wordset("-i -F -o -e")
_ENVIRONMENT = wordset("env printenv set export declare history")
_DECODES = wordset("-d -D --decode -r -di enc")
_NAMES = tuple(_SENDS | wordset("base64 base32 xxd openssl uudecode gpg /dev/tcp/ /dev/udp/"))
_CONNECTS = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, _NAMES)) + r")")


def name_of(simple: Simple) -> str:
    """The program's name without its folder."""
    return simple.argv[0].rpartition("/")[2] if simple.argv else ""


def runs_scripts(name: str) -> bool:
    """True for a shell, an interpreter or a builtin that runs the file that its words name."""
    plain = name.rstrip("0123456789.") or name  # python3.13
    return (
        plain in SHELLS
        or plain in OTHER_SHELLS
        or plain in _OTHER_INTERPRETERS
        or plain in _RUNS_TEXT
    )


def is_secret(word: str) -> bool:
    """True when a word names a place where credentials or histories are kept."""
    return _SECRETS.search(word) is not None


def is_descriptor(word: str) -> bool:
    """True for the name of what is open already: the standard input, a here-document."""
    return _DESCRIPTOR.fullmatch(word) is not None


def reads_program(simple: Simple) -> bool:
    """True for an interpreter that takes the program from its standard input."""
    name = name_of(simple)
    shell = name in SHELLS or name in OTHER_SHELLS
    if not shell and name not in _OTHER_INTERPRETERS:
        return False
    for word in simple.argv[1:]:
        if word == "-" or is_descriptor(word):
            return True
        if shell and word[:1] == "-" and not word.startswith("--"):
            if "s" in word:
                return True
            if "c" in word:
                return False
        elif word in _INLINE or word[:1] != "-":
            return False
    return True


def may_flow(text: str) -> bool:
    """False when no command in the text could complete any of these dangers."""
    return any(name in text for name in _NAMES) and _CONNECTS.search(text) is not None


class Flow:
    """Sees the commands of one script in order and remembers what flows between them."""

    def __init__(self, script: Script) -> None:
        self._commands = script.commands
        self._download = self._decode = self._secret = self._shell = -1
        self._files: set[str] = set()

    def see(self, index: int, simple: Simple) -> Danger | None:
        """The danger that this command completes, if any."""
        if not simple.argv and not simple.redirects:
            return None
        name = name_of(simple)
        danger = (
            self._runs_download(simple, name)
            or self._sends_secret(index, simple, name)
            or self._hands_over_shell(simple, name)
        )
        self._remember(index, simple, name)
        return danger

    def _remember(self, index: int, simple: Simple, name: str) -> None:
        if name in _DOWNLOADS:
            self._download = index
            self._files.update(_saved_as(simple))
        elif name in ("base64", "base32", "xxd", "openssl", "uudecode", "gpg"):
            if _DECODES.intersection(simple.argv[1:]):
                self._decode = index
        elif name in SHELLS and len(simple.argv) - ("-i" in simple.argv) == 1:
            self._shell = index
        prints_environment = name in _ENVIRONMENT and len(simple.argv) <= 2
        if prints_environment or any(map(is_secret, _named(simple))):
            self._secret = index

    def _runs_download(self, simple: Simple, name: str) -> Danger | None:
        fetched = self._fetched(simple)
        if fetched and (runs_scripts(name) or simple.mark(0)):
            return Danger("pipe_to_shell", f"runs what {fetched} downloads, unseen")
        if simple.upstream >= 0 and simple.argv and reads_program(simple):
            if self._download >= simple.upstream:
                return Danger("pipe_to_shell", f"{name} runs a download, unseen")
            if self._decode >= simple.upstream:
                return Danger("pipe_to_shell", f"{name} runs decoded text, unseen")
        if self._files and simple.argv:
            return self._runs_saved(simple, name)
        return None

    def _fetched(self, simple: Simple) -> str:
        """The downloader among the commands that this one's own words run."""
        start, end = simple.substituted
        if start == end or not start <= self._download < end:
            return ""
        return name_of(self._commands[self._download])

    def _runs_saved(self, simple: Simple, name: str) -> Danger | None:
        words = [simple.argv[0]]
        if name in SHELLS or name in _OTHER_INTERPRETERS or name in _RUNS_TEXT:
            words += [word for word in simple.argv[1:] if word[:1] != "-"][:1]
        for word in words:
            if word.removeprefix("./") in self._files:
                return Danger("pipe_to_shell", f"runs {word}, which this very script downloads")
        return None

    def _sends_secret(self, index: int, simple: Simple, name: str) -> Danger | None:
        if name not in _SENDS:
            if any(r.target.startswith(("/dev/tcp/", "/dev/udp/")) for r in simple.redirects):
                return self._from_secret(index, simple, "a socket")
            return None
        words = list(simple.argv[1:])
        if name in ("ssh", "sftp"):
            words = []
        keys = _SSH_KEYS if name in ("scp", "rsync") else _CURL_KEYS
        for place, word in enumerate(words):
            if is_secret(word) and (not place or words[place - 1] not in keys):
                return Danger("send_secret", f"{name} sends {word}")
        return self._from_secret(index, simple, name)

    def _from_secret(self, index: int, simple: Simple, name: str) -> Danger | None:
        start, end = simple.substituted
        piped = 0 <= simple.upstream <= self._secret
        if piped or start <= self._secret < min(end, index):
            source = " ".join(self._commands[self._secret].argv)
            return Danger("send_secret", f"{name} sends what `{source}` prints")
        for redirect in simple.redirects:
            if redirect.kind == "read" and is_secret(redirect.target):
                return Danger("send_secret", f"{name} sends {redirect.target}")
        return None

    def _hands_over_shell(self, simple: Simple, name: str) -> Danger | None:
        socket = any(r.target.startswith(("/dev/tcp/", "/dev/udp/")) for r in simple.redirects)
        if socket and (name in SHELLS or name in OTHER_SHELLS or name == "exec"):
            return Danger("reverse_shell", f"{name} is connected to a socket")
        if name in ("nc", "ncat", "netcat"):
            options = read_options(simple.argv, "pswiqgGIlmoTVXxe")
            if options.has("e", "c", "--exec", "--sh-exec"):
                return Danger("reverse_shell", f"{name} starts a program for anyone who connects")
        if name == "socat" and any(
            word.lower().startswith(("exec:", "system:", "shell:")) for word in simple.argv[1:]
        ):
            return Danger("reverse_shell", "socat starts a program for anyone who connects")
        if name in _SENDS and 0 <= simple.upstream <= self._shell:
            return Danger("reverse_shell", f"{name} sends what a shell prints")
        return None


def _named(simple: Simple) -> list[str]:
    read = [r.target for r in simple.redirects if r.kind == "read"]
    return [*simple.argv[1:], *read]


def _saved_as(simple: Simple) -> set[str]:
    """Where a download is kept, as it is spelled."""
    saved = {
        r.target.removeprefix("./")
        for r in simple.redirects
        if r.kind == "write" and not r.target.startswith("/dev/")
    }
    for place, word in enumerate(simple.argv):
        if word in ("-o", "--output", "-O", "--output-document") and place + 1 < len(simple.argv):
            saved.add(simple.argv[place + 1].removeprefix("./"))
        elif word.startswith(("--output=", "--output-document=")):
            saved.add(word.partition("=")[2].removeprefix("./"))
        if "://" in word:
            saved.add(word.partition("?")[0].rstrip("/").rpartition("/")[2])
    return saved - {"", "-"}


def fork_bomb(script: Script) -> Danger | None:
    """A function that starts itself again beside itself."""
    for function in script.functions:
        if _multiplies(script, function):
            return Danger("fork_bomb", f"{function.name}() starts itself over and over")
    return None


def _multiplies(script: Script, function: Function) -> bool:
    body = script.commands[function.start : function.end]
    calls = [simple for simple in body if simple.argv[:1] == (function.name,)]
    return bool(calls) and (function.background or any(call.upstream >= 0 for call in calls))
