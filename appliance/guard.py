"""Which TCP ports a policy must never close: the ones through which the operator gets in, and the site itself.

What a rule drops is known to `xdp.policy`; here is only what this machine listens on.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

SSH_DEFAULT_PORT = 22
TCP_LISTEN = "0A"  # include/net/tcp_states.h, as /proc/net/tcp prints it


def protected_ports(https_port: int) -> frozenset[int]:
    """The HTTPS port and every port on which SSH listens or is configured to listen."""
    return frozenset({https_port}) | ssh_ports()


def ssh_ports() -> frozenset[int]:
    """Ports of sshd: the sockets it listens on now, and those its configuration names (a socket-activated sshd listens
    through init, and a stopped one may start). 22 when neither tells."""
    found = listening_ports({"sshd", "dropbear"}) | configured_ports()
    return frozenset(found) or frozenset({SSH_DEFAULT_PORT})


def configured_ports(root: Path = Path("/etc/ssh")) -> set[int]:
    """Ports that sshd_config(5) and its included directory set by `Port` and `ListenAddress`."""
    found: set[int] = set()
    for path in (root / "sshd_config", *sorted((root / "sshd_config.d").glob("*.conf"))):
        try:
            text = path.read_text(errors="replace")
        except OSError:
            continue
        for pattern in (r"^\s*Port[\s=]+(\d+)", r"^\s*ListenAddress[\s=]+(?:[^\s:\[]+|\[[^\]]+\]):(\d+)"):
            found |= {int(port) for port in re.findall(pattern, text, re.MULTILINE | re.IGNORECASE)}
    return {port for port in found if 1 <= port <= 65535}


def listening_ports(names: Iterable[str]) -> set[int]:
    """TCP ports on which processes of these names listen, in the network namespace of the calling thread."""
    wanted = frozenset(names)
    inodes: set[str] = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if Path("/proc", entry, "comm").read_text().rstrip("\n") in wanted:
                    inodes |= _socket_inodes(Path("/proc", entry, "fd"))
            except OSError:
                continue  # ended meanwhile
    return {port for inode, port in _listening_sockets() if inode in inodes}


def _socket_inodes(descriptors: Path) -> set[str]:
    found = set()
    for descriptor in descriptors.iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            target = os.readlink(descriptor)
            if target.startswith("socket:["):
                found.add(target[len("socket:[") : -1])
    return found


def _listening_sockets() -> Iterable[tuple[str, int]]:
    for table in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/thread-self/net", table).read_text().splitlines()[1:]
        except OSError:
            continue  # no IPv6
        for line in lines:
            fields = line.split()
            if fields[3] == TCP_LISTEN:
                yield fields[9], int(fields[1].rpartition(":")[2], 16)
