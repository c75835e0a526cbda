"""Nested repositories in a worktree: where they are, and archives of files of a workspace.

Tools can write a nested repository's settings, which may name programs, so git never enters one:
its files are packed as they are, without `.git`.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from io import BytesIO

_MOST_BYTES = 64 << 20
_MOST_FILES = 100_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def nested_repositories(root: bytes) -> list[bytes]:
    """The folders below a worktree that are repositories of their own, relative to it."""
    found = []
    for folder, folders, files in os.walk(root):
        if folder != root and b".git" in (*folders, *files):
            found.append(os.path.relpath(folder, root))
            folders.clear()
        elif folder == root and b".git" in folders:
            folders.remove(b".git")
    return sorted(found)


def pack(root: str, repositories: Iterable[str]) -> bytes:
    """A tar.gz of these repositories' files and links, named relative to the worktree.

    OSError when something cannot be read, or when it is more than fits.
    """
    out, size, count = BytesIO(), 0, 0
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
        for name, folder, entry in _entries(root, repositories):
            size, count = size + _add(tar, name, folder, entry), count + 1
            if size > _MOST_BYTES or count > _MOST_FILES:
                most = f"{_MOST_BYTES >> 20} MB or {_MOST_FILES:,} files"
                raise OSError(errno.EFBIG, f"they are more than {most}")
    return out.getvalue()


def unpack(data: bytes, root: str) -> None:
    """Put what `pack` has packed into an empty folder; OSError for another kind of archive.

    Links come last, and into folders that are there by then: none leads out of the folder.
    """
    links, size = [], 0
    try:
        with tarfile.open(fileobj=BytesIO(data), mode="r:gz") as tar:
            for count, info in enumerate(tar, 1):
                size += info.size
                if size > _MOST_BYTES or count > _MOST_FILES or not _is_below(info.name):
                    raise tarfile.TarError(f"{info.name} is not ours")
                path = os.path.join(root, info.name)
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                if info.issym():
                    links.append((info.linkname, path))
                elif info.isreg() and (content := tar.extractfile(info)) is not None:
                    _write(path, content.read(), info.mode)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise OSError(errno.EINVAL, f"the stored workspace cannot be unpacked: {error}") from None
    for target, path in links:
        os.symlink(target, path)


def _is_below(name: str) -> bool:
    return os.path.normpath(name) == name and not name.startswith(("/", "../")) and name != ".."


def _write(path: str, data: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, _NEW, 0o600), "wb") as file:
        file.write(data)
        os.fchmod(file.fileno(), mode & 0o777 | 0o600)


def _entries(root: str, repositories: Iterable[str]) -> Iterator[tuple[str, int, str]]:
    """Each entry: its name from the worktree on, its open folder, its name there."""
    for repository in repositories:
        top = _opened(root, repository)
        try:
            for path, folders, files, folder in os.fwalk(".", onerror=_fail, dir_fd=top):
                # A link to a folder is among the folders, and is not followed.
                for entry in sorted({*files, *folders} - {".git"}):
                    yield os.path.normpath(os.path.join(repository, path, entry)), folder, entry
                folders[:] = [name for name in folders if name != ".git"]
        finally:
            os.close(top)


def _opened(root: str, repository: str) -> int:
    """Open a folder below the worktree; OSError where a link was put in its way since."""
    fd = os.open(root, _FOLDER)
    for name in repository.split("/"):
        try:
            step = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=fd)
        finally:
            os.close(fd)
        fd = step
    return fd


def _fail(error: OSError) -> None:
    raise error


def _add(tar: tarfile.TarFile, name: str, folder: int, entry: str) -> int:
    """Add one file or link; what is neither is left out. Returns its size."""
    status = os.stat(entry, dir_fd=folder, follow_symlinks=False)
    info = tar.tarinfo(name)
    info.mtime, info.mode = int(status.st_mtime), stat.S_IMODE(status.st_mode) & 0o777
    if stat.S_ISLNK(status.st_mode):
        info.type, info.linkname = b"2", os.readlink(entry, dir_fd=folder)
        tar.addfile(info)
    elif stat.S_ISREG(status.st_mode) and status.st_size <= _MOST_BYTES:
        info.size = status.st_size
        with os.fdopen(os.open(entry, _READ, dir_fd=folder), "rb") as file:
            tar.addfile(info, file)
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
