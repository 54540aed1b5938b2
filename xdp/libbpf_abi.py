"""The C side of libbpf 1.1 as ctypes must know it: option structures, callbacks, prototypes. Nothing is called here.

An option structure begins with its own size, so a shorter one than the library's stays valid (`OPTS_VALID`).
"""

from __future__ import annotations

import ctypes
from typing import Any


class LinkCreateOpts(ctypes.Structure):
    """`struct bpf_link_create_opts`, as far as XDP needs it."""

    _fields_ = [("sz", ctypes.c_size_t), ("flags", ctypes.c_uint32), ("padding", ctypes.c_uint32)]


class MapCreateOpts(ctypes.Structure):
    """`struct bpf_map_create_opts`, as far as a plain map needs it."""

    _fields_ = [
        ("sz", ctypes.c_size_t),
        ("btf_fd", ctypes.c_uint32),
        ("btf_key_type_id", ctypes.c_uint32),
        ("btf_value_type_id", ctypes.c_uint32),
        ("btf_vmlinux_value_type_id", ctypes.c_uint32),
        ("inner_map_fd", ctypes.c_uint32),
        ("map_flags", ctypes.c_uint32),
    ]


class TestRunOpts(ctypes.Structure):
    """`struct bpf_test_run_opts`."""

    _fields_ = [
        ("sz", ctypes.c_size_t),
        ("data_in", ctypes.c_void_p),
        ("data_out", ctypes.c_void_p),
        ("data_size_in", ctypes.c_uint32),
        ("data_size_out", ctypes.c_uint32),
        ("ctx_in", ctypes.c_void_p),
        ("ctx_out", ctypes.c_void_p),
        ("ctx_size_in", ctypes.c_uint32),
        ("ctx_size_out", ctypes.c_uint32),
        ("retval", ctypes.c_uint32),
        ("repeat", ctypes.c_int),
        ("duration", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("cpu", ctypes.c_uint32),
        ("batch_size", ctypes.c_uint32),
    ]


class XdpQueryOpts(ctypes.Structure):
    """`struct bpf_xdp_query_opts` of libbpf 1.1."""

    _fields_ = [
        ("sz", ctypes.c_size_t),
        ("prog_id", ctypes.c_uint32),
        ("drv_prog_id", ctypes.c_uint32),
        ("hw_prog_id", ctypes.c_uint32),
        ("skb_prog_id", ctypes.c_uint32),
        ("attach_mode", ctypes.c_uint8),
        ("padding", ctypes.c_uint8 * 7),
    ]


class MapInfo(ctypes.Structure):
    """`struct bpf_map_info` of linux/bpf.h, up to the name."""

    _fields_ = [
        ("type", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
        ("key_size", ctypes.c_uint32),
        ("value_size", ctypes.c_uint32),
        ("max_entries", ctypes.c_uint32),
        ("map_flags", ctypes.c_uint32),
        ("name", ctypes.c_char * 16),
    ]


class LinkInfo(ctypes.Structure):
    """`struct bpf_link_info` of linux/bpf.h, as an XDP link fills it."""

    _fields_ = [
        ("type", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
        ("prog_id", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
        ("xdp_ifindex", ctypes.c_uint32),
        ("rest", ctypes.c_uint8 * 108),
    ]


# libbpf hands its log a va_list. On x86-64 and arm64 that arrives as one pointer, which vsnprintf takes as it is.
PRINT_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
SAMPLE_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

_P, _I, _U, _S, _Z = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t
PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "bpf_object__open_file": (_P, [_S, _P]),
    "bpf_object__load": (_I, [_P]),
    "bpf_object__close": (None, [_P]),
    "bpf_object__find_map_fd_by_name": (_I, [_P, _S]),
    "bpf_object__find_program_by_name": (_P, [_P, _S]),
    "bpf_program__fd": (_I, [_P]),
    "bpf_prog_test_run_opts": (_I, [_I, _P]),
    "bpf_prog_get_fd_by_id": (_I, [_U]),
    "bpf_map_create": (_I, [_I, _S, _U, _U, _U, _P]),
    "bpf_map_lookup_elem": (_I, [_I, _P, _P]),
    "bpf_map_update_elem": (_I, [_I, _P, _P, ctypes.c_uint64]),
    "bpf_map_update_batch": (_I, [_I, _P, _P, _P, _P]),
    "bpf_map_lookup_batch": (_I, [_I, _P, _P, _P, _P, _P, _P]),
    "bpf_map_get_fd_by_id": (_I, [_U]),
    "bpf_obj_get": (_I, [_S]),
    "bpf_obj_pin": (_I, [_I, _S]),
    "bpf_obj_get_info_by_fd": (_I, [_I, _P, _P]),
    "bpf_link_create": (_I, [_I, _I, _I, _P]),
    "bpf_link_detach": (_I, [_I]),
    "bpf_xdp_query": (_I, [_I, _I, _P]),
    "libbpf_num_possible_cpus": (_I, []),
    "libbpf_set_print": (_P, [PRINT_FUNCTION]),
    "libbpf_version_string": (_S, []),
    "ring_buffer__new": (_P, [_I, SAMPLE_FUNCTION, _P, _P]),
    "ring_buffer__poll": (_I, [_P, _I]),
    "ring_buffer__epoll_fd": (_I, [_P]),
    "ring_buffer__free": (None, [_P]),
}
