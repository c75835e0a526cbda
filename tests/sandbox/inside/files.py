"""Probes about files: writing, renaming and linking outside, protected names, hidden ones."""

from __future__ import annotations

import errno
import os
import stat
import subprocess

from .kit import Context, NotHere, probe


def create(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def append(path: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"x")
    os.close(fd)


def put(path: str) -> None:
    """Create a file and the folders it needs."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    create(path)


@probe("func")
def write_ws(c: Context) -> None:
    create(c["ws"] + "/made")


@probe("info")
def write_tmp(c: Context) -> None:
    create("/tmp/" + c["mark"])


@probe("deny")
def write_var_tmp(c: Context) -> str | None:
    create("/var/tmp/" + c["mark"])
    return "private" if c["private_tmp"] else None


@probe("deny")
def write_dev_shm(c: Context) -> str | None:
    create("/dev/shm/" + c["mark"])
    return (
        "private"
        if os.path.ismount("/dev") and not os.path.exists("/dev/shm/" + c["shm_mark"])
        else None
    )


@probe("deny")
def create_outside(c: Context) -> None:
    create(c["outside"] + "/created")


@probe("deny")
def append_outside(c: Context) -> None:
    append(c["outside"] + "/file")


@probe("deny")
def truncate_outside(c: Context) -> None:
    os.truncate(c["outside"] + "/file", 0)


@probe("deny")
def unlink_outside(c: Context) -> None:
    os.unlink(c["outside"] + "/victim")


@probe("deny")
def symlink_file_out(c: Context) -> None:
    link = c["ws"] + "/link-file"
    os.symlink(c["outside"] + "/file", link)
    append(link)


@probe("deny")
def symlink_preexisting_out(c: Context) -> None:
    append(c["ws"] + "/old-link")


@probe("deny")
def symlink_dir_out(c: Context) -> None:
    link = c["ws"] + "/link-dir"
    os.symlink(c["outside"], link)
    create(link + "/through-link")


@probe("deny")
def proc_self_root(c: Context) -> None:
    create("/proc/self/root" + c["outside"] + "/self-root")


@probe("deny")
def proc_pid_root(c: Context) -> None:
    create(f"/proc/{c['pid']}/root{c['outside']}/pid-root")


@probe("deny")
def proc_pid_cwd(c: Context) -> None:
    create(f"/proc/{c['pid']}/cwd/pid-cwd")


@probe("deny")
def procfd_reopen(c: Context) -> None:
    fd = os.open(c["outside"] + "/file", os.O_RDONLY)
    os.write(os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_APPEND), b"x")


@probe("deny")
def hardlink_preexisting(c: Context) -> None:
    append(c["ws"] + "/old-hardlink")


@probe("deny")
def hardlink_create(c: Context) -> None:
    os.link(c["outside"] + "/file", c["ws"] + "/new-hardlink")
    append(c["ws"] + "/new-hardlink")


@probe("deny")
def rename_out(c: Context) -> None:
    create(c["ws"] + "/to-move")
    os.rename(c["ws"] + "/to-move", c["outside"] + "/moved")


@probe("deny")
def chmod_outside(c: Context) -> None:
    os.chmod(c["outside"] + "/file", 0o640)


@probe("deny")
def chown_outside(c: Context) -> None:
    os.chown(c["outside"] + "/file", os.getuid(), os.getgid())


@probe("deny")
def utime_outside(c: Context) -> None:
    os.utime(c["outside"] + "/file", (1, 1))


@probe("deny")
def setxattr_outside(c: Context) -> None:
    try:
        os.setxattr(c["outside"] + "/file", "user.toolrest", b"x")
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            raise NotHere("no extended attributes") from None
        raise


@probe("deny")
def home_dotfile(c: Context) -> None:
    append(c["home"] + "/.bashrc")


@probe("deny")
def home_ssh_authorized(c: Context) -> None:
    create(c["home"] + "/.ssh/authorized_keys")


@probe("deny")
def codex_home_rules(c: Context) -> None:
    put(c["toolrest_home"] + "/rules/self.rules")


@probe("deny")
def git_hooks(c: Context) -> None:
    create(c["ws"] + "/.git/hooks/pre-commit")


@probe("deny")
def git_config(c: Context) -> None:
    append(c["ws"] + "/.git/config")


@probe("info")
def git_head(c: Context) -> None:
    fd = os.open(c["ws"] + "/.git/HEAD", os.O_WRONLY | os.O_APPEND)
    os.close(fd)


@probe("deny")
def git_rename(c: Context) -> None:
    git = c["ws"] + "/.git"
    os.rename(git, git + "-old")
    os.mkdir(git)
    os.rmdir(git)
    os.rename(git + "-old", git)


@probe("deny")
def git_create_absent(c: Context) -> None:
    put(c["plain"] + "/.git/config")
    os.unlink(c["plain"] + "/.git/config")
    os.rmdir(c["plain"] + "/.git")


@probe("deny")
def gitfile_create_absent(c: Context) -> None:
    create(c["plain"] + "/.git")
    os.unlink(c["plain"] + "/.git")


@probe("deny")
def git_symlink(c: Context) -> None:
    put(c["linked"] + "/.git/hooks/x")


@probe("info")
def git_nested(c: Context) -> None:
    put(c["ws"] + "/sub/.git/hooks/pre-commit")


@probe("deny")
def codex_dir(c: Context) -> None:
    put(c["ws"] + "/.codex/config.toml")


@probe("deny")
def agents_dir(c: Context) -> None:
    put(c["ws"] + "/.agents/x")


@probe("info")
def vscode_tasks(c: Context) -> None:
    put(c["ws"] + "/.vscode/tasks.json")


@probe("info")
def mcp_json(c: Context) -> None:
    create(c["ws"] + "/.mcp.json")


@probe("info")
def ws_bashrc(c: Context) -> None:
    create(c["ws"] + "/.bashrc")


@probe("func")
def read_passwd(c: Context) -> None:
    os.read(os.open("/etc/passwd", os.O_RDONLY), 1)


@probe("info")
def read_ssh_key(c: Context) -> None:
    os.read(os.open(c["home"] + "/.ssh/id_rsa", os.O_RDONLY), 1)


@probe("info")
def read_outside_0600(c: Context) -> None:
    os.read(os.open(c["outside"] + "/private", os.O_RDONLY), 1)


@probe("info")
def fill_tmp_50mb(c: Context) -> None:
    fd = os.open("/tmp/" + c["mark"] + "-big", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for _ in range(50):
            os.write(fd, bytes(1 << 20))
    finally:
        os.unlink("/tmp/" + c["mark"] + "-big")


@probe("func")
def dev_null_rw(c: Context) -> None:
    os.write(os.open("/dev/null", os.O_RDWR), b"x")


@probe("func")
def git_commit(c: Context) -> str | None:
    with open(c["ws"] + "/tracked", "a") as stream:
        stream.write("x\n")
    for arguments in (["add", "tracked"], ["commit", "-qm", "from inside"]):
        done = subprocess.run(["git", *arguments], cwd=c["ws"], capture_output=True)
        if done.returncode:
            return f"rc{done.returncode} {done.stderr.decode()[:200]}"
    return None


@probe("func")
def exec_tmp(c: Context) -> str | None:
    path = c["ws"] + "/script.sh"
    with open(path, "w") as stream:
        stream.write("#!/bin/sh\nexit 7\n")
    os.chmod(path, 0o755)
    code = subprocess.run([path]).returncode
    return None if code == 7 else f"rc{code}"


@probe("deny")
def mknod_blk(c: Context) -> None:
    device = os.stat("/").st_dev
    os.mknod(c["ws"] + "/disk", stat.S_IFBLK | 0o600, device)
    os.open(c["ws"] + "/disk", os.O_RDONLY)
