"""Launch a requested program: descriptors, terminal, confinement, exec."""

from __future__ import annotations

import _socket
import fcntl
import marshal
import os
import resource
import struct
import termios

from . import kernel, signals, views, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_SEALS = 0xF  # seal, shrink, grow, write
_ADD_SEALS = 1033
_EXEC_FAILED = 127
_INVALID = 22
_TOO_MANY = 24
_BENT = 2
_NO_PROCESS = (11, 12)  # EAGAIN, ENOMEM

Request = tuple[
    bytes,  # argv, a NUL between each two
    bytes,  # cwd
    tuple[tuple[bytes, bytes], ...],  # environment
    bool,  # controlling terminal on descriptor 0
    tuple[tuple[int, int], ...],  # (descriptor in the child, index of the one that was sent)
    tuple[tuple[int, bytes], ...],  # memory files
    tuple[tuple[bytes, int], ...] | None,  # Landlock rules
    bool,  # Landlock network
    int,  # Landlock scopes
    bytes | None,  # seccomp program
    tuple[tuple[int, int, int], ...],  # limits
    kernel.Linked,  # what must not be replaced
    bool,  # what the host mounts is kept out before it starts
    wire.Check | None,  # mounts that must be there, and no others
    tuple[tuple[bytes, bytes], ...],  # masks
    int,  # how many of the descriptors, the last ones, are for the keeper to hold
    bool,  # the command is a launcher with a pid namespace of its own
]


class Failed(Exception):
    """A program could not be started: at which step, and the error number."""

    def __init__(self, step: str, number: int) -> None:
        super().__init__(step, number)
        self.step = wire.STEPS.index(step)
        self.number = number


def receive(requests: _socket.socket) -> tuple[int, bytes, list[int]] | None:
    """Receive a request: the command's socket, payload, child's descriptors; None at the end.

    Does not wait; BlockingIOError when there is none.
    """
    size = _socket.CMSG_SPACE(wire.MAX_FDS * 4)
    flags = _socket.MSG_CMSG_CLOEXEC | _socket.MSG_DONTWAIT
    data, ancillary, _, _ = requests.recvmsg(wire.INLINE, size, flags)
    fds: list[int] = []
    for level, kind, raw in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            fds += struct.unpack(f"{len(raw) // 4}i", raw)
    if data == wire.ELSEWHERE and len(fds) > 1:
        file = fds.pop(1)
        data = os.pread(file, os.fstat(file).st_size, 0)
        os.close(file)
    return (fds[0], data, fds[1:]) if data and fds else None


def decode(payload: bytes) -> Request:
    """Decode the request in a payload."""
    request: Request = marshal.loads(payload)  # noqa: S302 - our own host wrote it
    return request


def needs_fork(request: Request) -> bool:
    """Whether the child has to confine itself before exec, which takes a fork."""
    _, _, _, terminal, _, _, rules, _, scoped, program, limits, linked, *_ = request
    confined = rules is not None or bool(scoped) or program is not None
    return terminal or confined or bool(limits) or bool(linked)


def with_descriptor(request: Request, target: int, index: int) -> Request:
    """The same request with one more descriptor for the child, the index-th that was sent."""
    return (*request[:4], (*request[4], (target, index)), *request[5:])


def mask(
    pid: int, masks: tuple[tuple[bytes, bytes], ...], check: wire.Check | None
) -> bytes | None:
    """Make mounts in the namespace of another process, and check what is mounted there then.

    What to tell that process: a line, which is empty where all is well; None when a mount failed.
    """
    child = os.fork()
    if child == 0:
        try:
            signals.forget()
            listed = os.open(f"/proc/{pid}/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
            kernel.enter_mounts(pid)
            kernel.keep_apart()
            for path, shown in masks:
                if not views.is_closed_to_all(path):
                    kernel.show_at(shown or path, path)
            os._exit(0 if check is None or views.is_as_meant(_whole(listed), check) else _BENT)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {0: b"\n", _BENT: wire.CHANGED + b"\n"}.get(code)


def keep_apart(pid: int) -> None:
    """Keep what the host mounts from now on out of the namespace of another process.

    Bubblewrap lets it through, and nothing makes it read-only there.
    """
    try:
        with open(f"/proc/{pid}/mountinfo", "rb", buffering=0) as file:
            listed = _whole(file.fileno())
    except OSError:
        return
    if b" shared:" not in listed and b" master:" not in listed:
        return
    child = os.fork()
    if child == 0:
        try:
            signals.forget()
            kernel.enter_mounts(pid)
            kernel.keep_apart()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _whole(fd: int) -> bytes:
    pieces = []
    while piece := os.read(fd, 1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


def spawn(request: Request, fds: list[int]) -> int:
    """Spawn a program that needs nothing but descriptors; return its pid or raise Failed.

    The new process borrows our memory until exec instead of copying it, which is what makes this
    the fast way; so nothing of ours can run in it.
    """
    argv, cwd, env, _, plan, files = request[:6]
    ours: list[int] = []
    memory = _kept if request[-1] and len(files) == 1 else _memory
    try:
        try:
            placed = _placed(plan, files, fds, ours, memory)
        except OSError as error:
            raise Failed("descriptors", error.errno or 0) from None
        try:
            os.chdir(cwd)
        except OSError as error:
            raise Failed("workdir", error.errno or 0) from None
        actions = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in placed]
        return _spawn(argv.split(b"\0"), dict(env), actions)
    finally:
        os.chdir("/")
        for fd in ours:
            os.close(fd)


def _spawn(argv: list[bytes], env: dict[bytes, bytes], actions: list[tuple[int, int, int]]) -> int:
    problem: OSError = FileNotFoundError(2, "No such file or directory")
    try:
        for path in _paths(argv[0], env):
            try:
                return os.posix_spawn(path, argv, env, file_actions=actions, setsid=True)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except PermissionError as error:
                problem = error
    except OSError as error:
        problem = error
    except (ValueError, OverflowError):
        raise Failed("exec", _INVALID) from None
    number = problem.errno or 0
    raise Failed("fork" if number in _NO_PROCESS else "exec", number)


def fork(request: Request, fds: list[int], parent: int) -> tuple[int, _socket.socket]:
    """Start a program in a child that first confines itself: its pid and start socket.

    The socket is closed when exec succeeded; else it first carries the step and the error.
    """
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        pid = os.fork()
    except OSError as error:
        ours.close()
        raise Failed("fork", error.errno or 0) from None
    finally:
        if os.getpid() == parent:
            theirs.close()
    if pid == 0:
        _become(request, fds, theirs, parent)
    return pid, ours


def _become(request: Request, fds: list[int], keeper: _socket.socket, parent: int) -> None:
    """Prepare and exec the program, in the child; never returns."""
    step = [wire.STEPS.index("session")]
    try:
        signals.forget()
        os.setsid()
        kernel.die_with_parent(9)
        if os.getppid() != parent:
            return
        _prepare(request, fds, step)
        _enter(step, "exec")
        _exec(request[0].split(b"\0"), dict(request[2]))
    except OSError as error:
        keeper.send(wire.pack(wire.FAILED, step[0], error.errno or 0), _socket.MSG_NOSIGNAL)
    except (ValueError, OverflowError):
        keeper.send(wire.pack(wire.FAILED, step[0], _INVALID), _socket.MSG_NOSIGNAL)
    finally:
        os._exit(_EXEC_FAILED)


def _prepare(request: Request, fds: list[int], step: list[int]) -> None:
    _, cwd, _, terminal, plan, files, rules, net, scoped, program, limits, linked, *_ = request

    _enter(step, "descriptors")
    for target, source in _placed(plan, files, fds, [], _memory):
        os.dup2(source, target, inheritable=True)
    _enter(step, "terminal")
    if terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    _enter(step, "links")
    if linked:
        kernel.hold_links(linked, os.fsencode(wire.COPIES))
    _enter(step, "workdir")
    os.chdir(cwd)
    _enter(step, "limits")
    for which, soft, hard in limits:
        resource.setrlimit(which, _within(which, soft, hard))
    _confine(rules, net, scoped, program, step)


def _enter(step: list[int], name: str) -> None:
    step[0] = wire.STEPS.index(name)


def _confine(
    rules: tuple[tuple[bytes, int], ...] | None,
    net: bool,
    scoped: int,
    program: bytes | None,
    step: list[int],
) -> None:
    if rules is None and program is None and not scoped:
        return
    _enter(step, "no_new_privs")
    kernel.no_new_privileges()
    _enter(step, "landlock")
    if rules is not None or scoped:
        kernel.landlock(rules, net, scoped)
    _enter(step, "seccomp")
    if program is not None:
        kernel.install_seccomp(program)


def _within(which: int, soft: int, hard: int) -> tuple[int, int]:
    """A resource limit, kept where it is already tighter: only root could raise it."""
    _, ceiling = resource.getrlimit(which)
    if ceiling != resource.RLIM_INFINITY and (hard > ceiling or hard == resource.RLIM_INFINITY):
        hard = ceiling
    if hard != resource.RLIM_INFINITY and (soft > hard or soft == resource.RLIM_INFINITY):
        soft = hard
    return soft, hard


def _placed(
    plan: tuple[tuple[int, int], ...],
    files: tuple[tuple[int, bytes], ...],
    fds: list[int],
    made: list[int],
    memory: Callable[[bytes, list[int]], int],
) -> list[tuple[int, int]]:
    """Descriptors for dup2, as pairs of target and source.

    Sources lie above every target, so that no dup2 can overwrite one still needed; those
    made for that are added to `made`. All other descriptors close themselves at exec.
    """
    above = max([2, *(target for target, _ in plan), *(target for target, _ in files)]) + 1

    def lifted(fd: int) -> int:
        if fd >= above:
            return fd
        try:
            made.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above))
        except OSError as error:
            if error.errno != _INVALID:
                raise
            # The limit on open files is below that number.
            raise OSError(_TOO_MANY, os.strerror(_TOO_MANY)) from None
        return made[-1]

    pairs: list[tuple[int, int]] = []
    for target, index in plan:
        # Our own standard input is the null device.
        pairs.append((target, lifted(0 if index == wire.NULL else fds[index])))
    for target, contents in files:
        pairs.append((target, lifted(memory(contents, made))))
    return pairs


def _kept(contents: bytes, made: list[int]) -> int:
    """The memory file of the previous launcher, reused when the contents are the same.

    A launcher reads its file to the end and passes it on to no one; a keeper has one at a time.
    """
    if _last.get(contents) is None:
        while _last:
            os.close(_last.popitem()[1])
        _last[contents] = _memory(contents, made)
        made.pop()
    os.lseek(_last[contents], 0, os.SEEK_SET)
    return _last[contents]


_last: dict[bytes, int] = {}


def _memory(contents: bytes, made: list[int]) -> int:
    fd = os.memfd_create("toolrest", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    made.append(fd)
    rest = memoryview(contents)
    while rest:
        rest = rest[os.write(fd, rest) :]
    os.lseek(fd, 0, os.SEEK_SET)
    fcntl.fcntl(fd, _ADD_SEALS, _SEALS)
    return fd


def _paths(name: bytes, env: dict[bytes, bytes]) -> list[bytes]:
    """Paths at which to look for a program: its own path, or the absolute entries of PATH."""
    if b"/" in name:
        return [name]
    folders = env.get(b"PATH", b"/usr/bin:/bin").split(b":")
    return [folder + b"/" + name for folder in folders if folder.startswith(b"/")]


def _exec(argv: list[bytes], env: dict[bytes, bytes]) -> None:
    problem: OSError = FileNotFoundError(2, "No such file or directory")
    for path in _paths(argv[0], env):
        try:
            os.execve(path, argv, env)  # noqa: S606 - no shell is the point
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            problem = error
    raise problem
