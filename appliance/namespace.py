"""Network namespaces: making and removing them, and working inside them from a thread or as a child process.

What is put into a namespace (links, addresses) is not known here.

A network namespace belongs to a thread, not to a process (setns(2)): entering one moves the calling thread only,
and what that thread creates meanwhile (sockets, children) stays in the namespace for good.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from appliance.settings import ApplianceError

# Where iproute2 and pyroute2 keep named namespaces, so that `ip netns exec NAME` works on ours too.
NAMESPACES = Path("/run/netns")

# In the environment of every child started in a namespace of ours, and so of its children: a process that lives in
# such a namespace and carries the mark was started by us, whatever became of the process that started it.
MARK = "ZS_NAMESPACE"

CLONE_NEWNS = 0x00020000
CLONE_NEWNET = 0x40000000
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

Result = TypeVar("Result")


class _Kernel:
    """The four system calls that Python 3.11 lacks. Invariant: strings passed are NUL-free bytes that outlive the
    call, and a failure is raised as OSError from the errno of this very call (`use_errno` keeps it per thread)."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def setns(self, descriptor: int, kind: int) -> None:
        self._check(self._libc.setns(descriptor, kind), "setns")

    def unshare(self, kinds: int) -> None:
        self._check(self._libc.unshare(kinds), "unshare")

    def mount(self, source: str, target: str, filesystem: str | None, flags: int) -> None:
        encoded = filesystem.encode() if filesystem else None
        result = self._libc.mount(source.encode(), target.encode(), encoded, ctypes.c_ulong(flags), None)
        self._check(result, f"mount {target}")

    def umount(self, target: str) -> None:
        self._check(self._libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")

    @staticmethod
    def _check(result: int, what: str) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{what}: {os.strerror(number)}")


_kernel = _Kernel()


def in_thread(function: Callable[[], Result]) -> Result:
    """Run `function` in a thread of its own and return its result (or raise its error).

    Leaving waits for the thread also when Ctrl-C interrupts the wait, so an undo never races with the deed.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="zs-namespace") as pool:
        return pool.submit(function).result()


@contextlib.contextmanager
def pinned(cpu: int | None) -> Iterator[None]:
    """The calling thread, and the children it starts meanwhile, run on `cpu` only; None changes nothing.

    Children inherit the mask at birth, so not one of their instructions runs elsewhere.
    """
    if cpu is None:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {cpu})
        yield
    except OSError as error:
        raise ApplianceError(f"cannot run on CPU {cpu}: {error.strerror}", f"use one of {sorted(before)}") from error
    finally:
        os.sched_setaffinity(0, before)


@dataclass(frozen=True, slots=True)
class Namespace:
    """A named network namespace. The object is only the name: creating and removing are its methods."""

    name: str

    @property
    def path(self) -> Path:
        return NAMESPACES / self.name

    def exists(self) -> bool:
        """Whether a namespace is mounted under this name (an empty file left by a crash is not one)."""
        return os.path.ismount(self.path)

    def create(self) -> None:
        """Make the namespace, with its loopback still down. Errors: ApplianceError when the name is taken or the
        kernel refuses."""
        try:
            NAMESPACES.mkdir(mode=0o755, parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o444))
            in_thread(self._mount_new)
        except FileExistsError as error:
            raise ApplianceError(f"network namespace {self.name} exists already", "zs-appliance down") from error
        except OSError as error:
            raise ApplianceError(
                f"cannot create network namespace {self.name}: {error.strerror}", "run as root"
            ) from error

    def _mount_new(self) -> None:
        _kernel.unshare(CLONE_NEWNET)
        _kernel.mount("/proc/thread-self/ns/net", str(self.path), None, MS_BIND)

    def remove(self) -> bool:
        """Take the name away; the kernel ends the namespace with its last process and socket. Says whether there was
        one to remove."""
        if self.path.exists():
            # A crash between mounts can leave several on one another, or none.
            while os.path.ismount(self.path):
                _kernel.umount(str(self.path))
            self.path.unlink()
            return True
        return False

    @contextlib.contextmanager
    def enter(self) -> Iterator[None]:
        """The calling thread works inside the namespace until the block ends; other threads are not moved.

        Sockets and children made in the block belong to the namespace for good. Do not await in the block: other
        tasks of the loop would run inside too. `/proc/net` follows the main thread; read `/proc/thread-self/net`.
        """
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._move_here()
            yield
        finally:
            _kernel.setns(home, CLONE_NEWNET)
            os.close(home)

    def _move_here(self) -> None:
        try:
            inside = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ApplianceError(f"no network namespace {self.name}", "zs-appliance up --lab") from error
        try:
            _kernel.setns(inside, CLONE_NEWNET)
        finally:
            os.close(inside)

    def run(self, function: Callable[[], Result]) -> Result:
        """`function()` in a thread of its own inside the namespace. For what cannot share a thread with a running
        event loop, such as pyroute2, whose synchronous calls run an asyncio loop of their own."""

        def inside() -> Result:
            self._move_here()
            return function()

        return in_thread(inside)

    def run_with_sysfs(self, function: Callable[[], Result]) -> Result:
        """As `run`, with `/sys` showing the namespace's own devices. sysfs shows the devices of the namespace in which
        it was mounted, so a fresh one is mounted where only that thread sees it; it goes with the thread."""

        def inside() -> Result:
            _kernel.unshare(CLONE_NEWNS)
            _kernel.mount("none", "/", None, MS_REC | MS_PRIVATE)
            self._move_here()
            _kernel.mount("sysfs", "/sys", "sysfs", 0)
            return function()

        return in_thread(inside)

    def socket(self, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM, protocol: int = 0) -> socket.socket:
        """A socket of this namespace, usable from any thread of this process."""
        with self.enter():
            return socket.socket(family, kind, protocol)

    def popen(
        self,
        argv: Sequence[str],
        *,
        cpu: int | None = None,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[Any]:
        """Start a child inside the namespace, on `cpu` only when given. `env` and `options` are those of
        subprocess.Popen. The pid is the child's own: nothing stands between.

        The caller owns the child; `Lab.close()` ends those that are still there.
        """
        environment = dict(os.environ if env is None else env)
        environment[MARK] = self.name
        with self.enter(), pinned(cpu):
            return subprocess.Popen(argv, env=environment, **options)

    def processes(self) -> list[int]:
        """Pids of the living processes that were started by `popen`, by this or any other process, and their
        children."""
        if not self.exists():
            return []
        home = self.path.stat()
        mark = f"{MARK}={self.name}".encode()
        return [pid for pid in _pids() if _lives_in(pid, home) and _is_marked(pid, mark)]


def _pids() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdigit())


def _lives_in(pid: int, namespace: os.stat_result) -> bool:
    try:
        its_own = os.stat(f"/proc/{pid}/ns/net")
    except OSError:
        return False  # gone, or a zombie: neither holds anything
    return (its_own.st_dev, its_own.st_ino) == (namespace.st_dev, namespace.st_ino)


def _is_marked(pid: int, mark: bytes) -> bool:
    """Whether `mark` is in the environment of the process. execve(2) closes descriptors, by which a parent learns that
    it worked, before it sets the environment up: a process that shows none gets a moment."""
    for _ in range(20):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        if environment:
            return mark in environment.split(b"\0")
        time.sleep(0.005)
    return False
