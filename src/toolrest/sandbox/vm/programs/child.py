"""The last steps of a command in the machine, between fork and exec."""

from __future__ import annotations

import base64
import fcntl
import os
import resource
import signal
import termios
from typing import Any

_UNMAPPED = 65_534
"""The group of files whose real group has no number in the view; the host checks these again."""
_HIGH, _HIGHEST = 100, 500


def become(spec: dict[str, Any], given: tuple[int, int, int], group: str, terminal: bool) -> None:
    """In the child: be the command. What fails here is its exit code and its error."""
    code = 126
    try:
        with open(group, "w", encoding="ascii") as file:
            file.write("0")
        os.setsid()
        if terminal:
            fcntl.ioctl(given[0], termios.TIOCSCTTY, 0)
        _place(given, spec["files"])
        for which, soft, hard in spec["limits"]:
            resource.setrlimit(which, (soft, hard))
        os.setgroups([_UNMAPPED])
        os.setresgid(spec["gid"], spec["gid"], spec["gid"])
        os.setresuid(spec["uid"], spec["uid"], spec["uid"])
        os.chdir(spec["cwd"])
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        argv = [base64.b64decode(word) for word in spec["argv"]]
        os.execve(argv[0], argv, spec["env"])  # noqa: S606
    except FileNotFoundError as error:
        code = 127
        os.write(2, f"toolrest: {error}\n".encode())
    except BaseException as error:
        os.write(2, f"toolrest: {error}\n".encode())
    finally:
        os._exit(code)


def _place(given: tuple[int, int, int], files: list[tuple[int, str]]) -> None:
    """Standard streams, then memory files at the numbers that the command expects; no others."""
    made = []
    for number, text in files:
        fd = os.memfd_create("toolrest", 0)
        os.write(fd, base64.b64decode(text))
        os.lseek(fd, 0, os.SEEK_SET)
        made.append((number, fcntl.fcntl(fd, fcntl.F_DUPFD, _HIGH)))
    for number, fd in enumerate(fcntl.fcntl(fd, fcntl.F_DUPFD, _HIGH) for fd in given):
        os.dup2(fd, number)
    os.closerange(3, _HIGH)
    for number, fd in made:
        os.dup2(fd, number)
    os.closerange(_HIGH, _HIGHEST)
