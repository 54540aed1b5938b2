"""Thin, safe types over the system's libbpf: open, load, pin, attach, maps, ring buffers, test runs.

Every ctypes call of the project's kernel side is made in this file. It knows nothing of packets or policies.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from xdp import libbpf_abi as abi
from xdp.errors import XdpError

_BPF_XDP = 37  # enum bpf_attach_type
_MAP_TYPES_PER_CPU = {5, 6, 10, 21}  # PERCPU_HASH, PERCPU_ARRAY, LRU_PERCPU_HASH, PERCPU_CGROUP_STORAGE
_BATCH_ENTRIES = 4096
_INDEX = struct.Struct("=I")
_LOG_BYTES = 1 << 24  # the verifier tells everything before it tells what is wrong; untouched pages cost nothing


class MapType(IntEnum):
    """`enum bpf_map_type`, as far as the project creates maps itself."""

    ARRAY = 2
    LPM_TRIE = 11


class XdpFlags(IntEnum):
    """`XDP_FLAGS_*` of linux/if_link.h."""

    GENERIC = 1 << 1
    NATIVE = 1 << 2


_log = threading.local()  # libbpf logs on the calling thread: each thread collects its own lines


@cache
def _libc_vsnprintf() -> Callable[..., int]:
    function = ctypes.CDLL(None).vsnprintf
    function.restype = ctypes.c_int
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p]
    return function


def _collect(level: int, line_format: bytes, arguments: int) -> int:
    lines: list[str] | None = getattr(_log, "lines", None)
    if lines is not None and level == 0:  # LIBBPF_WARN
        text = ctypes.create_string_buffer(_LOG_BYTES)
        _libc_vsnprintf()(text, len(text), line_format, arguments)
        lines.extend(text.value.decode(errors="replace").splitlines())
    return 0


_PRINT = abi.PRINT_FUNCTION(_collect)


@cache
def _library() -> ctypes.CDLL:
    """The system's libbpf 1.x with its prototypes declared and its log silenced; raises `XdpError`."""
    try:
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
        for name, (result, arguments) in abi.PROTOTYPES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise XdpError(
            f"libbpf cannot be used ({error})", "install the package libbpf1, version 1.1 or later"
        ) from None
    library.libbpf_set_print(_PRINT)
    return library


def version() -> str:
    """The version of the libbpf in use, such as `v1.1`."""
    return str(_library().libbpf_version_string().decode())


@contextmanager
def _captured_log() -> Iterator[list[str]]:
    lines: list[str] = []
    _log.lines = lines
    try:
        yield lines
    finally:
        _log.lines = None


def _why(code: int) -> str:
    if abs(code) == 1:
        return "operation not permitted; run as root"
    return os.strerror(abs(code)).lower()


def _essence(lines: list[str]) -> str:
    """The one line of libbpf's log that says what went wrong: the verifier's own last word, or the first complaint."""
    verifier = [line for line in lines if line.strip() and not line.startswith(("libbpf:", "processed ", "--"))]
    if verifier:
        return verifier[-1].strip()
    return lines[0].removeprefix("libbpf: ").strip() if lines else ""


def _checked(code: int, doing: str) -> int:
    if code < 0:
        raise OSError(-code, f"{doing}: {_why(code)}")
    return code


@dataclass(frozen=True, slots=True)
class TestRun:
    """What BPF_PROG_TEST_RUN gave: the program's return value, the frame after it, the mean ns of one pass."""

    returned: int
    frame: bytes
    mean_ns: int


class Map:
    """One map by its file descriptor, which this object owns. Keys and values are `bytes` of the map's own sizes.

    Methods raise `OSError` with the kernel's errno.
    """

    def __init__(self, fd: int) -> None:
        info, size = abi.MapInfo(), ctypes.c_uint32(ctypes.sizeof(abi.MapInfo))
        self.fd = fd
        _checked(_library().bpf_obj_get_info_by_fd(fd, ctypes.byref(info), ctypes.byref(size)), "reading a map's shape")
        self.name: str = info.name.decode()
        self.id: int = info.id
        self.type: int = info.type
        self.key_size: int = info.key_size
        self.value_size: int = info.value_size
        self.max_entries: int = info.max_entries

    @classmethod
    def create(cls, kind: MapType, name: str, *, key_size: int, value_size: int, max_entries: int) -> Self:
        """A new map that lives as long as this object, or as another map holds it."""
        options = abi.MapCreateOpts(sz=ctypes.sizeof(abi.MapCreateOpts))
        options.map_flags = 1 if kind is MapType.LPM_TRIE else 0  # BPF_F_NO_PREALLOC, which tries insist on
        fd = _library().bpf_map_create(kind, name.encode(), key_size, value_size, max_entries, ctypes.byref(options))
        return cls(_checked(fd, f"creating the map {name}"))

    @classmethod
    def pinned(cls, path: Path) -> Self:
        """The map that is pinned at `path`."""
        return cls(_checked(_library().bpf_obj_get(os.fsencode(path)), f"opening {path}"))

    def close(self) -> None:
        """Gives the descriptor back; the map lives on where it is pinned or in use."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def pin(self, path: Path) -> None:
        """Pins the map at `path`, which must lie on a bpffs."""
        _checked(_library().bpf_obj_pin(self.fd, os.fsencode(path)), f"pinning {path}")

    def lookup(self, key: bytes) -> bytes | None:
        """The value at `key`, or None. A per-CPU map gives the values of all possible CPUs, one after another."""
        self._check(key, None)
        value = ctypes.create_string_buffer(self._value_bytes())
        code = _library().bpf_map_lookup_elem(self.fd, key, value)
        if code == -2:  # ENOENT
            return None
        _checked(code, f"reading the map {self.name}")
        return value.raw

    def lookup_per_cpu(self, key: bytes) -> list[bytes]:
        """The values at `key`, one for each possible CPU."""
        value = self.lookup(key) or b""
        stride = _rounded(self.value_size)
        return [value[at : at + self.value_size] for at in range(0, len(value), stride)]

    def update(self, key: bytes, value: bytes) -> None:
        """Writes one entry, new or not."""
        self._check(key, value)
        _checked(_library().bpf_map_update_elem(self.fd, key, value, 0), f"writing the map {self.name}")

    def hold(self, index: int, inner: Map) -> None:
        """Puts `inner` at `index` of this array of maps. Returns when no program can still see what was there."""
        self.update(_INDEX.pack(index), _INDEX.pack(inner.fd))

    def held(self, index: int) -> Map | None:
        """The map at `index` of this array of maps."""
        identity = self.lookup(_INDEX.pack(index))
        if identity is None:
            return None
        fd = _library().bpf_map_get_fd_by_id(_INDEX.unpack(identity)[0])
        return Map(_checked(fd, f"opening what {self.name} holds"))

    def update_all(self, entries: Mapping[bytes, bytes]) -> None:
        """Writes many entries with few system calls."""
        for key, value in entries.items():
            self._check(key, value)
        count = ctypes.c_uint32(len(entries))
        if entries:
            keys, values = b"".join(entries), b"".join(entries.values())
            code = _library().bpf_map_update_batch(self.fd, keys, values, ctypes.byref(count), None)
            _checked(code, f"writing {len(entries)} entries to the map {self.name}")

    def entries(self) -> dict[bytes, bytes]:
        """All entries, as read; meant for maps that nothing else writes meanwhile."""
        found: dict[bytes, bytes] = {}
        keys = ctypes.create_string_buffer(_BATCH_ENTRIES * self.key_size)
        values = ctypes.create_string_buffer(_BATCH_ENTRIES * self._value_bytes())
        # A trie's place in a batch is its last key; a hash's is a 32-bit bucket number.
        place = ctypes.create_string_buffer(max(self.key_size, 4))
        begun, code = False, 0
        while code != -2:  # ENOENT: the end, and what came with it counts
            count = ctypes.c_uint32(_BATCH_ENTRIES)
            code = _library().bpf_map_lookup_batch(
                self.fd, place if begun else None, place, keys, values, ctypes.byref(count), None
            )
            if code != -2:
                _checked(code, f"reading the map {self.name}")
            found.update(self._split(keys.raw, values.raw, count.value))
            begun = True
        return found

    def _split(self, keys: bytes, values: bytes, count: int) -> Iterator[tuple[bytes, bytes]]:
        for i in range(count):
            key = keys[i * self.key_size : (i + 1) * self.key_size]
            yield key, values[i * self._value_bytes() : (i + 1) * self._value_bytes()]

    def _value_bytes(self) -> int:
        if self.type in _MAP_TYPES_PER_CPU:
            return _rounded(self.value_size) * _checked(_library().libbpf_num_possible_cpus(), "counting the CPUs")
        return self.value_size

    def _check(self, key: bytes, value: bytes | None) -> None:
        # The kernel reads as many bytes as the map's shape says: a shorter buffer would leak what lies behind it.
        if len(key) != self.key_size or (value is not None and len(value) != self._value_bytes()):
            raise ValueError(f"map {self.name} takes {self.key_size}-byte keys and {self._value_bytes()}-byte values")


def _rounded(size: int) -> int:
    return (size + 7) // 8 * 8  # per-CPU values are copied in multiples of eight bytes


class Program:
    """A loaded program, by a file descriptor that its object owns."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def test_run(self, frame: bytes, *, repeat: int = 1) -> TestRun:
        """Runs the program on `frame` in the kernel, without any interface. An XDP frame has at least 14 bytes."""
        out = ctypes.create_string_buffer(len(frame) + 256)
        given = ctypes.create_string_buffer(frame, len(frame))
        options = abi.TestRunOpts(sz=ctypes.sizeof(abi.TestRunOpts), data_size_in=len(frame), data_size_out=len(out))
        options.data_in, options.data_out = ctypes.addressof(given), ctypes.addressof(out)
        options.repeat = repeat
        _checked(_library().bpf_prog_test_run_opts(self.fd, ctypes.byref(options)), "BPF_PROG_TEST_RUN")
        return TestRun(options.retval, out.raw[: options.data_size_out], options.duration)

    def attach_xdp(self, ifindex: int, flags: XdpFlags) -> Link:
        """Attaches to the interface through a bpf_link; raises `OSError` where the driver or an occupant refuses."""
        options = abi.LinkCreateOpts(sz=ctypes.sizeof(abi.LinkCreateOpts), flags=flags)
        fd = _library().bpf_link_create(self.fd, ifindex, _BPF_XDP, ctypes.byref(options))
        return Link(_checked(fd, "attaching"))


class Link:
    """An attachment. It ends with the last descriptor or pin that holds it, or with `detach`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def pinned(cls, path: Path) -> Self:
        """The link that is pinned at `path`."""
        return cls(_checked(_library().bpf_obj_get(os.fsencode(path)), f"opening {path}"))

    def pin(self, path: Path) -> None:
        """Lets the attachment outlive this process, under a name on a bpffs."""
        _checked(_library().bpf_obj_pin(self.fd, os.fsencode(path)), f"pinning {path}")

    def target(self) -> tuple[int, int]:
        """(interface index, program id); the index is 0 when the interface is gone or the link was detached."""
        info, size = abi.LinkInfo(), ctypes.c_uint32(ctypes.sizeof(abi.LinkInfo))
        _checked(_library().bpf_obj_get_info_by_fd(self.fd, ctypes.byref(info), ctypes.byref(size)), "reading a link")
        return int(info.xdp_ifindex), int(info.prog_id)

    def program(self) -> Program:
        """The program this link attaches. Its descriptor is the caller's to close."""
        return Program(_checked(_library().bpf_prog_get_fd_by_id(self.target()[1]), "opening a link's program"))

    def detach(self) -> None:
        """Detaches now, whoever else holds the link."""
        _checked(_library().bpf_link_detach(self.fd), "detaching")

    def close(self) -> None:
        """Gives the descriptor back, which detaches unless something else holds the link."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class RingBuffer:
    """The reading end of one ring buffer map, which must outlive this object."""

    def __init__(self, ring: Map) -> None:
        self._records: list[bytes] = []
        self._callback = abi.SAMPLE_FUNCTION(self._receive)  # kept here, or it is freed under libbpf's feet
        self._pointer = _library().ring_buffer__new(ring.fd, self._callback, None, None)
        if not self._pointer:
            raise OSError(ctypes.get_errno(), f"opening the ring buffer {ring.name}")

    def _receive(self, _context: int, data: int, size: int) -> int:
        self._records.append(ctypes.string_at(data, size))
        return 0

    def fileno(self) -> int:
        """A descriptor that is readable when records wait, for an event loop."""
        return int(_library().ring_buffer__epoll_fd(self._pointer))

    def read(self, wait_ms: int = 0) -> list[bytes]:
        """The records that are there, after waiting at most `wait_ms` for the first."""
        code = _library().ring_buffer__poll(self._pointer, wait_ms)
        records, self._records = self._records, []
        if code != -4:  # EINTR: a signal ended the wait
            _checked(code, "reading a ring buffer")
        return records

    def close(self) -> None:
        """Unmaps the ring."""
        if self._pointer:
            _library().ring_buffer__free(self._pointer)
            self._pointer = None


class Object:
    """A BPF object file, loaded into the kernel: its programs and maps live while this object is open."""

    def __init__(self, pointer: int, path: Path) -> None:
        self._pointer: int | None = pointer
        self.path = path

    @classmethod
    def load(cls, path: Path) -> Self:
        """Opens the object file and loads all of it; raises one `XdpError` with what libbpf and the verifier said."""
        library = _library()
        with _captured_log() as log:
            pointer = library.bpf_object__open_file(os.fsencode(path), None)
            if not pointer:
                raise cls._error(path, "open", ctypes.get_errno(), log)
            loaded = cls(pointer, path)
            code = library.bpf_object__load(pointer)
            if code < 0:
                loaded.close()
                raise cls._error(path, "load", -code, log)
        return loaded

    @staticmethod
    def _error(path: Path, step: str, code: int, log: list[str]) -> XdpError:
        essence = _essence(log)
        reason = f"{_why(code)}; libbpf says: {essence}" if essence else _why(code)
        hint = "run as root" if code == 1 else "rebuild it with `make bpf`"
        return XdpError(f"cannot {step} the BPF object {path} ({reason})", hint)

    def map(self, name: str) -> Map:
        """The map of that name, by a descriptor of its own; raises `XdpError` if the object has none."""
        fd = _library().bpf_object__find_map_fd_by_name(self._pointer, name.encode())
        if fd < 0:
            raise XdpError(f"the BPF object {self.path} has no map {name}", "rebuild it with `make bpf`")
        return Map(os.dup(fd))

    def program(self, name: str) -> Program:
        """The program of that name, by a descriptor of its own; raises `XdpError` if the object has none."""
        pointer = _library().bpf_object__find_program_by_name(self._pointer, name.encode())
        if not pointer:
            raise XdpError(f"the BPF object {self.path} has no program {name}", "rebuild it with `make bpf`")
        return Program(os.dup(_library().bpf_program__fd(pointer)))

    def close(self) -> None:
        """Lets go of everything that is neither attached, pinned nor held by a descriptor of its own."""
        if self._pointer:
            _library().bpf_object__close(self._pointer)
            self._pointer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Attached:
    """What an interface runs: program ids, 0 where there is none. `native` is the driver's hook."""

    native: int
    generic: int


def attached_to(ifindex: int) -> Attached:
    """The XDP programs on an interface of the calling thread's network namespace; raises `OSError`."""
    options = abi.XdpQueryOpts(sz=ctypes.sizeof(abi.XdpQueryOpts))
    _checked(_library().bpf_xdp_query(ifindex, 0, ctypes.byref(options)), "asking an interface for its programs")
    return Attached(native=options.drv_prog_id, generic=options.skb_prog_id)
