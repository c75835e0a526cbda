"""The container engine's own program, which runs unconfined: its variables, and its containers.

The client takes programs and settings from folders (helpers on PATH, plugins, hooks, runtimes). One
that a command may write would run the command's code outside of every container, so PATH goes
without such folders, and settings in them are refused: without them the client would ask another
engine than the user's, or another storage.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from uuid import uuid4

from toolrest.own_code import folders_in, lies_in, real_path
from toolrest.policy.paths.names import unique
from toolrest.private_files import own_file, private_folder
from toolrest.process.helper.tree import alive, stat_fields
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.programs import SYSTEM_FOLDERS

LABEL = "toolrest"
_OWNER = "toolrest.owner"
MACHINE_ID = "/etc/machine-id"
_FILES = (
    *("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "DOCKER_CERT_PATH", "DOCKER_CONFIG"),
    *("XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"),
)
"""Variables that name a file or folder of the client's settings or state."""
_ADDRESSES = ("CONTAINER_HOST", "DOCKER_HOST")
_CLIENT_ENV = (*_FILES, *_ADDRESSES, "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "HOME")
"""What the client needs of the host's own variables; the command's never reach it."""
_DOCKER, _PODMAN, _IMAGES = ".docker", ".config/containers", ".local/share/containers"
"""Folders in the home: the settings of each client, and podman's images."""
_DEEPEST = 3
_MOST_ENTRIES = 2000
_LOOK = 0.2
"""Seconds between two looks whether an answer is still waited for."""


def client_env(roots: Sequence[str] = ()) -> dict[str, str]:
    """The engine's client gets its own variables and nothing else.

    It finds helpers on PATH, so folders that lie in a writable root are not on it, nor relative
    ones; the others are resolved, so that no link is followed a second time.
    """
    env = {name: os.environ[name] for name in _CLIENT_ENV if name in os.environ}
    given = [path for path in os.environ.get("PATH", "").split(os.pathsep) if path.startswith("/")]
    folders = [real_path(path) for path in given]
    writable = folders_in(folders, roots)
    kept = [folder for folder in folders if folder not in writable]
    return env | {"PATH": os.pathsep.join(unique((*kept, *SYSTEM_FOLDERS)))}


def check_client_settings(program: str, env: Mapping[str, str], roots: Sequence[str]) -> None:
    """Refuse to run a client whose settings, state or address a command may write."""
    for name, path in _read_by(program, env):
        if not path.startswith("/") or lies_in(path, roots):
            raise SandboxUnavailable(
                f"sandbox: {name}: the container engine's client would use {path}, which commands"
                " may write, and it runs outside of the sandbox.",
                remedy=f"Move that out of the writable folders, or set {name.split()[0]} to another"
                " place.",
            )


def _read_by(program: str, env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each path that the client takes something from, after the variable that names it."""
    for name in _FILES:
        if env.get(name):
            yield name, env[name]
    for name in _ADDRESSES:
        if env.get(name, "").startswith("unix://"):
            yield name, env[name].removeprefix("unix://")
    for name, folder in _settings_of(program, env):
        yield name, folder
        for link in _links_in(folder):
            yield name, link
        for plugins in _plugin_folders(os.path.join(folder, "config.json")):
            yield f"{name} (cliPluginsExtraDirs of config.json)", plugins


def _settings_of(program: str, env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The client's folders of settings; one that is neither docker nor podman may have both's."""
    home, client = env.get("HOME") or os.path.expanduser("~"), os.path.basename(program)
    if client != "podman":
        given = env.get("DOCKER_CONFIG")
        yield ("DOCKER_CONFIG", given) if given else ("HOME", os.path.join(home, _DOCKER))
    if client != "docker":
        given = env.get("XDG_CONFIG_HOME")
        yield (
            ("XDG_CONFIG_HOME", os.path.join(given, "containers"))
            if given
            else ("HOME", os.path.join(home, _PODMAN))
        )
        yield "HOME", os.path.join(home, _IMAGES)


def _links_in(folder: str) -> Iterator[str]:
    """Links in a folder of settings and in its folders; images are not searched."""
    left = 0 if folder.endswith(_IMAGES) else _MOST_ENTRIES
    for place, folders, files in os.walk(folder):
        yield from filter(os.path.islink, (os.path.join(place, name) for name in folders + files))
        left -= len(folders) + len(files)
        if left < 0 or place.count("/") - folder.count("/") >= _DEEPEST:
            folders.clear()


def _plugin_folders(file: str) -> Iterable[str]:
    """Folders of plugins that docker's settings name: it runs each to learn what it is."""
    try:
        with open(file, encoding="utf-8") as settings:
            found = json.load(settings).get("cliPluginsExtraDirs", [])
    except (OSError, ValueError, AttributeError, RecursionError):
        return ()
    return [path for path in found if isinstance(path, str)] if isinstance(found, list) else ()


def _boot() -> str:
    """A word for this machine since it was started, with its table of processes."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip().replace("-", "")
        return f"{boot}.{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return "unknown"


def _machine_id() -> str:
    """The number that a machine has from its installation; empty where there is none."""
    try:
        with open(MACHINE_ID, encoding="ascii") as file:
            word = file.read().strip()
    except (OSError, ValueError):
        return ""
    return word if word.isalnum() else ""


def owner_of(registry: str) -> str:
    """A word for this home on this machine, kept in its own records; empty where it has none.

    Containers carry it, so that those of an earlier start of the machine are known as ours.
    """
    machine = _machine_id()
    if not machine:
        return ""  # machines that share a home could not be told apart
    try:
        folder = private_folder(registry)
        try:
            return _kept_word(folder, f"containers-{machine}")
        finally:
            os.close(folder)
    except OSError:
        return ""


def _kept_word(folder: int, name: str) -> str:
    """The word in a file of ours; a new one where there is none."""
    record = own_file(folder, name)
    try:
        fcntl.flock(record, fcntl.LOCK_EX)
        word = os.read(record, 64).decode("ascii", "replace")
        if not word.isalnum():
            word = uuid4().hex
            os.ftruncate(record, 0)
            os.pwrite(record, word.encode(), 0)
        return word
    finally:
        os.close(record)


def _born(pid: int) -> str:
    """When a process was started; 0 when there is none, or it is a zombie."""
    return stat_fields(pid)[19].decode() if alive(pid) else "0"


def new_name() -> str:
    """A name for a container that says whose it is."""
    pid = os.getpid()
    return f"{LABEL}-{_boot()}-{pid}-{_born(pid)}-{uuid4().hex}"


def _name_parts(name: str) -> tuple[str, int, str] | None:
    """The start of the machine, the owner's process and when that was started."""
    words = name.split("-")
    if len(words) != 5 or words[0] != LABEL or not words[2].isdigit():
        return None
    return words[1], int(words[2]), words[3]


def _is_left_behind(name: str) -> bool:
    """Whether the owner of a container is known to have ended; False for another machine's."""
    parts = _name_parts(name)
    return parts is not None and parts[0] == _boot() and parts[2] != _born(parts[1])


def _is_of_earlier_boot(name: str) -> bool:
    """Whether a container of this machine was made before the machine was started."""
    parts, now = _name_parts(name), _boot()
    return parts is not None and now != "unknown" != parts[0] and not _same_boot(parts[0], now)


def _same_boot(one: str, other: str) -> bool:
    return one.partition(".")[0] == other.partition(".")[0]


def _communicate(
    process: subprocess.Popen[bytes], seconds: float, given_up: threading.Event | None
) -> tuple[bytes, bytes]:
    """Both outputs of a process; TimeoutExpired after that time, or when it is given up."""
    until = time.monotonic() + seconds
    while True:
        left = until - time.monotonic()
        try:
            return process.communicate(timeout=left if given_up is None else min(left, _LOOK))
        except subprocess.TimeoutExpired:
            if given_up is None or given_up.is_set() or left <= _LOOK:
                raise


class EngineClient:
    """The engine's program with the arguments that go before its verb.

    `roots` are the folders that commands may write, `registry` is the folder of our records.
    """

    def __init__(
        self,
        program: str,
        engine_args: Sequence[str] = (),
        roots: Sequence[str] = (),
        registry: str | None = None,
    ) -> None:
        self.program = program
        self.argv = (program, *engine_args)
        self.env = client_env(roots)
        check_client_settings(program, self.env, roots)
        self._owner = owner_of(registry) if registry else ""

    @property
    def is_podman(self) -> bool:
        """Whether this is podman, which differs from docker in a few flags."""
        return os.path.basename(self.program) == "podman"

    @property
    def labels(self) -> tuple[str, ...]:
        """Flags for the labels by which `sweep` knows a container."""
        owner = ("--label", f"{_OWNER}={self._owner}") if self._owner else ()
        return ("--label", LABEL, *owner)

    def ask(
        self, *words: str, seconds: float = 20.0, given_up: threading.Event | None = None
    ) -> tuple[str, str]:
        """Run a verb to its end: what it printed, and the problem, empty when there is none.

        It is killed when it takes longer than this, or when it is `given_up`.
        """
        try:
            process = subprocess.Popen(
                [*self.argv, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self.env,
                cwd="/",
            )
        except OSError as error:
            return "", str(error)
        with process:
            try:
                said, errors = _communicate(process, seconds, given_up)
            except subprocess.TimeoutExpired as error:
                process.kill()
                return "", str(error)
        printed = said.decode("utf-8", "replace")
        if process.returncode == 0:
            return printed, ""
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        return printed, lines[-1] if lines else f"exited with {process.returncode}"

    def remove(self, name: str) -> bool:
        """End a container at once and remove it; whether that worked."""
        now = ("--time", "0") if self.is_podman else ()
        return not self.ask("rm", "--force", *now, name)[1]

    def sweep(self) -> None:
        """Remove the containers of processes that were killed, or that a reboot ended.

        A container of an earlier boot does not run any more, so one that runs is left alone.
        """
        for name in filter(_is_left_behind, self._labelled(LABEL)):
            self.remove(name)
        if self._owner:
            for name in filter(_is_of_earlier_boot, self._labelled(f"{_OWNER}={self._owner}")):
                self.ask("rm", name)

    def _labelled(self, label: str) -> list[str]:
        """The names of containers with a label, running or not."""
        flags = ("--all", "--filter", f"label={label}", "--format", "{{.Names}}")
        return self.ask("ps", *flags)[0].split()
