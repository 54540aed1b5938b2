"""What the measurement was made on: machine, kernel, interface, clock policy, temperature. Read, never set."""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SIOCETHTOOL = 0x8946
_SIOCGIFMTU = 0x8921
_ETHTOOL_GDRVINFO = 0x00000003
_DRIVER_INFO_BYTES = 196  # struct ethtool_drvinfo, include/uapi/linux/ethtool.h


@dataclass(frozen=True, slots=True)
class Environment:
    """`governor` and `temperature_c` are None where the machine has none (virtual machines usually have neither)."""

    model: str
    kernel: str
    interface: str
    driver: str
    mtu: int
    governor: str | None
    temperature_c: float | None
    lab: bool


def read_environment(interface: str, link_socket: socket.socket, *, lab: bool) -> Environment:
    """The environment now. `link_socket` is any socket of the interface's network namespace. Raises OSError."""
    return Environment(
        model=read_model(),
        kernel=os.uname().release,
        interface=interface,
        driver=_driver(interface, link_socket),
        mtu=_mtu(interface, link_socket),
        governor=_first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        temperature_c=_temperature(),
        lab=lab,
    )


def read_model() -> str:
    """The board's name (device tree), else the machine's (DMI), else the processor's, with the number of CPUs."""
    name = _first_line("/proc/device-tree/model") or _dmi_name() or _processor_name() or os.uname().machine
    return f"{name}, {os.cpu_count()} CPUs"


def _dmi_name() -> str | None:
    return _first_line("/sys/class/dmi/id/product_name")


def _processor_name() -> str | None:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return None


def _temperature() -> float | None:
    value = _first_line("/sys/class/thermal/thermal_zone0/temp")
    return int(value) / 1000 if value is not None else None


def _first_line(path: str) -> str | None:
    with suppress(OSError):
        return Path(path).read_text(errors="replace").strip("\0\n ").splitlines()[0]
    return None


def _driver(interface: str, link_socket: socket.socket) -> str:
    # The ioctl takes a pointer to its own structure, whose second field is the driver's name, 32 bytes.
    info = array.array("B", struct.pack("=I", _ETHTOOL_GDRVINFO) + bytes(_DRIVER_INFO_BYTES - 4))
    address, _ = info.buffer_info()
    fcntl.ioctl(link_socket, _SIOCETHTOOL, struct.pack("16sP16x", interface.encode(), address))
    return info.tobytes()[4:36].split(b"\0", 1)[0].decode()


def _mtu(interface: str, link_socket: socket.socket) -> int:
    answer = fcntl.ioctl(link_socket, _SIOCGIFMTU, struct.pack("16si20x", interface.encode(), 0))
    return int(struct.unpack("16si20x", answer)[1])
