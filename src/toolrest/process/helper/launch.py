"""The child from fork to exec: wait for a command, then descriptors, terminal, confinement."""

from __future__ import annotations

import _socket
import fcntl
import marshal
import os
import resource
import struct
import termios

from . import kernel, signals, wire

_SEALS = 0xF  # seal, shrink, grow, write
_ADD_SEALS = 1033
_EXEC_FAILED = 127
_INVALID = 22

Request = tuple[
    tuple[bytes, ...],  # argv
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
    bool,  # tell the host as soon as the program runs, not only with its end
    bool,  # the command is a launcher with a pid namespace of its own
]

# Harmless everywhere: the null device onto the null device, the root folder again.
_REHEARSAL: Request = (
    (b"true",),
    b"/",
    ((b"PATH", b"/"),),
    False,
    ((0, wire.NULL), (1, wire.NULL), (2, wire.NULL)),
    (),
    None,
    False,
    0,
    None,
    (),
    False,
    False,
)


def serve(requests: int, keeper: _socket.socket, parent: int) -> None:
    """Wait for a request, hand its link to the keeper, become its command; never returns.

    All that does not depend on the command is done before it comes; that includes touching the
    memory that the rest will need, which the fork left shared.
    """
    step = [wire.STEPS.index("session")]
    try:
        signals.forget()
        os.setsid()
        kernel.die_with_parent(9)
        if os.getppid() != parent:
            return
        _prepare(marshal.loads(marshal.dumps(_REHEARSAL)), [], step)  # noqa: S302
        received = receive(requests)
        if received is not None:
            link, data, fds = received
            request: Request = marshal.loads(data)  # noqa: S302 - our own host wrote it
            rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", link))]
            keeper.sendmsg([wire.pack(*request[-2:])], rights, _socket.MSG_NOSIGNAL)
            _prepare(request, fds, step)
            _enter(step, "exec")
            _exec(request[0], dict(request[2]))
    except OSError as error:
        keeper.send(wire.pack(wire.FAILED, step[0], error.errno or 0), _socket.MSG_NOSIGNAL)
    except (ValueError, OverflowError):
        keeper.send(wire.pack(wire.FAILED, step[0], _INVALID), _socket.MSG_NOSIGNAL)
    finally:
        os._exit(_EXEC_FAILED)


def receive(requests: int) -> tuple[int, bytes, list[int]] | None:
    """One request: the command's socket, its payload, the child's descriptors; None at the end."""
    entry = _socket.socket(fileno=requests)
    size = _socket.CMSG_SPACE(wire.MAX_FDS * 4)
    data, ancillary, _, _ = entry.recvmsg(wire.INLINE, size, _socket.MSG_CMSG_CLOEXEC)
    entry.detach()
    fds: list[int] = []
    for level, kind, raw in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            fds += struct.unpack(f"{len(raw) // 4}i", raw)
    if data == wire.ELSEWHERE and len(fds) > 1:
        file = fds.pop(1)
        data = os.pread(file, os.fstat(file).st_size, 0)
        os.close(file)
    return (fds[0], data, fds[1:]) if data and fds else None


def _prepare(request: Request, fds: list[int], step: list[int]) -> None:
    _, cwd, _, terminal, plan, files, rules, net, scoped, program, limits, _, _ = request

    _enter(step, "descriptors")
    _place(plan, files, fds)
    _enter(step, "terminal")
    if terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
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
    if rules is None and program is None:
        return
    _enter(step, "no_new_privs")
    kernel.no_new_privileges()
    _enter(step, "landlock")
    if rules is not None:
        kernel.landlock(rules, net, scoped)
    _enter(step, "seccomp")
    if program is not None:
        kernel.install_seccomp(program)


def _within(which: int, soft: int, hard: int) -> tuple[int, int]:
    """A limit can only be lowered by an ordinary user: keep what is already tighter."""
    _, ceiling = resource.getrlimit(which)
    if ceiling != resource.RLIM_INFINITY and (hard > ceiling or hard == resource.RLIM_INFINITY):
        hard = ceiling
    if hard != resource.RLIM_INFINITY and (soft > hard or soft == resource.RLIM_INFINITY):
        soft = hard
    return soft, hard


def _place(
    plan: tuple[tuple[int, int], ...], files: tuple[tuple[int, bytes], ...], fds: list[int]
) -> None:
    """Put every descriptor at its number; all others close themselves at exec.

    Sources first move above every target, so that no dup2 can overwrite one still needed.
    """
    above = max([2, *(target for target, _ in plan), *(target for target, _ in files)]) + 1
    moved: list[tuple[int, int]] = []
    for target, index in plan:
        source = os.open("/dev/null", os.O_RDWR) if index == wire.NULL else fds[index]
        moved.append((target, fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, above)))
    for target, contents in files:
        moved.append((target, fcntl.fcntl(_memory(contents), fcntl.F_DUPFD_CLOEXEC, above)))
    for target, source in moved:
        os.dup2(source, target, inheritable=True)


def _memory(contents: bytes) -> int:
    fd = os.memfd_create("toolrest", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    rest = memoryview(contents)
    while rest:
        rest = rest[os.write(fd, rest) :]
    os.lseek(fd, 0, os.SEEK_SET)
    fcntl.fcntl(fd, _ADD_SEALS, _SEALS)
    return fd


def _exec(argv: tuple[bytes, ...], env: dict[bytes, bytes]) -> None:
    """Exec by path, or by the PATH of the child's environment (absolute entries only)."""
    name = argv[0]
    if b"/" in name:
        os.execve(name, argv, env)  # noqa: S606 - no shell is the point
    problem: OSError = FileNotFoundError(2, "No such file or directory")
    for folder in env.get(b"PATH", b"/usr/bin:/bin").split(b":"):
        if not folder.startswith(b"/"):
            continue
        try:
            os.execve(folder + b"/" + name, argv, env)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            problem = error
    raise problem
