"""Probes about other processes, inherited descriptors, privileges and terminals."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import subprocess
import sys
import termios
import time

from .kit import Context, NotHere, checked, libc, probe, syscall

X86 = os.uname().machine == "x86_64"
PTRACE = 101 if X86 else 117
PIDFD_OPEN, PIDFD_GETFD = 434, 438
READV = 310 if X86 else 270
SETNS = 308 if X86 else 268
SHMAT = 30 if X86 else 196
SEIZE, DETACH = 0x4206, 17


class Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def wait_child() -> int:
    """A child that does nothing until it is killed."""
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    return pid


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def readv(pid: int, address: int) -> None:
    target = ctypes.create_string_buffer(8)
    here = Vector(ctypes.addressof(target), 8)
    there = Vector(address, 8)
    arguments = (ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    syscall(READV, pid, *arguments)


@probe("info")
def env_secret(c: Context) -> str | None:
    return None if "FAKE_SERVICE_API_KEY" in os.environ else "unset"


@probe("info")
def ppid_environ(c: Context) -> str | None:
    for pid in {os.getppid(), 1}:
        with open(f"/proc/{pid}/environ", "rb") as stream:
            if b"FAKE_SERVICE_API_KEY" in stream.read():
                return None
    return "absent"


@probe("deny")
def outside_environ(c: Context) -> str | None:
    with open(f"/proc/{c['pid']}/environ", "rb") as stream:
        return None if b"FAKE_SERVICE_API_KEY" in stream.read() else "absent"


@probe("deny")
def see_outside_procs(c: Context) -> str | None:
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as stream:
                if c["marker"].encode() in stream.read():
                    return None
        except OSError:
            continue
    return "unseen"


@probe("deny")
def outside_mem(c: Context) -> None:
    os.open(f"/proc/{c['pid']}/mem", os.O_RDONLY)


@probe("deny")
def kill_outside(c: Context) -> None:
    os.kill(c["pid"], signal.SIGUSR1)


@probe("deny")
def killpg_outside(c: Context) -> None:
    os.killpg(c["pid"], signal.SIGUSR1)


@probe("deny")
def ptrace_outside(c: Context) -> None:
    syscall(PTRACE, SEIZE, c["pid"], 0, 0)


@probe("info")
def ptrace_child(c: Context) -> None:
    pid = wait_child()
    try:
        syscall(PTRACE, SEIZE, pid, 0, 0)
    finally:
        end(pid)


@probe("deny")
def vm_readv_outside(c: Context) -> None:
    readv(c["pid"], c["address"])


@probe("info")
def vm_readv_child(c: Context) -> None:
    buffer = ctypes.create_string_buffer(8)
    pid = wait_child()
    try:
        readv(pid, ctypes.addressof(buffer))
    finally:
        end(pid)


@probe("deny")
def pidfd_getfd_outside(c: Context) -> None:
    syscall(PIDFD_GETFD, syscall(PIDFD_OPEN, c["pid"], 0), 0, 0)


@probe("deny")
def renice_outside(c: Context) -> None:
    os.setpriority(os.PRIO_PROCESS, c["pid"], 5)


@probe("deny")
def prlimit_outside(c: Context) -> None:
    resource.prlimit(c["pid"], resource.RLIMIT_NOFILE)


@probe("deny")
def setns_outside(c: Context) -> None:
    syscall(SETNS, os.open(f"/proc/{c['pid']}/ns/mnt", os.O_RDONLY), 0)


@probe("deny")
def sysv_shm_outside(c: Context) -> None:
    libc.shmat.restype = ctypes.c_ssize_t
    checked(libc.shmat(c["shm"], None, 0))


@probe("info")
def fork_200(c: Context) -> None:
    pids = [wait_child() for _ in range(200)]
    for pid in pids:
        end(pid)


@probe("deny")
def orphan_survives(c: Context) -> None:
    """Leaves a daemon behind; the host looks for it after the command has ended."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(
                sys.executable, [sys.executable, "-c", "import time; time.sleep(60)", c["orphan"]]
            )
        os._exit(0)
    os.wait()


@probe("deny")
def tiocsti(c: Context) -> None:
    fd = os.open("/dev/tty", os.O_RDWR) if c.get("tty") else 0
    fcntl.ioctl(fd, termios.TIOCSTI, b"x")


@probe("deny")
def dev_tty_open(c: Context) -> None:
    os.open("/dev/tty", os.O_RDWR)


@probe("deny")
def inherited_file_fd(c: Context) -> None:
    os.write(c["file_fd"], b"x")


@probe("deny")
def inherited_dir_fd(c: Context) -> None:
    os.open("by-dir-fd", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=c["dir_fd"])


@probe("deny")
def inherited_socket_fd(c: Context) -> None:
    os.write(c["socket_fd"], b"x")


@probe("deny")
def has_caps(c: Context) -> str | None:
    with open("/proc/self/status") as stream:
        fields = dict(line.split(":", 1) for line in stream)
    return None if int(fields["CapEff"], 16) or int(fields["CapPrm"], 16) else "CAPEFF0"


@probe("deny")
def new_privs(c: Context) -> str | None:
    with open("/proc/self/status") as stream:
        return "NNP" if "NoNewPrivs:\t1" in stream.read() else None


@probe("deny")
def setuid_binary(c: Context) -> str | None:
    path = c["outside"] + "/suid"
    if not os.path.exists(path):
        raise NotHere("no set-uid program could be prepared")
    done = subprocess.run([path, "-u"], capture_output=True, text=True)
    return "NOSUID" if done.stdout.strip() in (str(os.getuid()), "") else None


@probe("info")
def memfd_exec(c: Context) -> str | None:
    fd = os.memfd_create("probe", 0)
    with open("/bin/true", "rb") as stream:
        os.write(fd, stream.read())
    code = subprocess.run([f"/proc/self/fd/{fd}"], pass_fds=(fd,)).returncode
    return None if code == 0 else f"rc{code}"


@probe("info")
def mem_256mb(c: Context) -> None:
    block = bytearray(256 << 20)
    block[:: 1 << 12] = b"x" * (256 << 8)


@probe("func")
def mp_semaphore(c: Context) -> None:
    import multiprocessing

    with multiprocessing.Semaphore(1):
        return
