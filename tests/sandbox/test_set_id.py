"""No file that a sandboxed command of root makes is setuid or setgid, on the host neither."""

from __future__ import annotations

import stat
from typing import Any

SCRIPT = r"""
import ctypes, os
def attempt(what, *arguments):
    try:
        what(*arguments)
    except OSError:
        pass
open("a", "w").close()
open("b", "w").close()
attempt(os.chmod, "a", 0o4755)
attempt(os.chmod, "b", 0o2755)
attempt(os.open, "c", os.O_CREAT | os.O_WRONLY, 0o4755)
attempt(os.mknod, "d", 0o104755)
handle = os.open("e", os.O_CREAT | os.O_RDWR, 0o600)
attempt(os.fchmod, handle, 0o6755)
libc = ctypes.CDLL(None)
how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0)
libc.syscall(437, -100, b"f", how, 24)
libc.syscall(452, -100, b"a", 0o4755, 0)
os.chmod("a", 0o755)
os.mkdir("g", 0o755)
os.open("h", os.O_RDWR | os.O_CREAT, 0o644)
"""


def test_commands_make_no_setuid_files(person: Any, backend: str) -> None:
    """Failed before: what root's sandboxed command left in the workspace was setuid root."""
    (person.workspace / "make.py").write_text(SCRIPT)
    (result,) = person.confined("python3 make.py", backend=backend)
    assert result.code == 0, result.text
    found = {path.name: path.stat() for path in person.workspace.iterdir()}
    assert {"a", "b", "e", "g", "h"} <= found.keys()
    assert stat.S_IMODE(found["a"].st_mode) == 0o755
    made = {
        name: oct(status.st_mode)
        for name, status in found.items()
        if status.st_mode & 0o6000 and status.st_uid == 0
    }
    assert made == {}
