"""The ports through which the operator gets in are found, whatever way sshd was told of them."""

from __future__ import annotations

import socket
from pathlib import Path

from appliance.guard import configured_ports, listening_ports, protected_ports, ssh_ports


def test_ports_are_read_from_sshd_configuration_and_its_directory(tmp_path: Path) -> None:
    (tmp_path / "sshd_config.d").mkdir()
    (tmp_path / "sshd_config").write_text(
        "# Port 1\n"
        "Port 2222\n"
        "  port=2223\n"
        "ListenAddress 192.0.2.1:2224\n"
        "ListenAddress [2001:db8::1]:2225\n"
        "ListenAddress 2001:db8::2\n"
        "ListenAddress host.example:2226\n"
        "GatewayPorts 9\n"
        "Port 99999\n"
    )
    (tmp_path / "sshd_config.d" / "site.conf").write_text("Port 2227\n")
    (tmp_path / "sshd_config.d" / "notes.txt").write_text("Port 3\n")
    assert configured_ports(tmp_path) == {2222, 2223, 2224, 2225, 2226, 2227}


def test_missing_configuration_names_no_port(tmp_path: Path) -> None:
    assert configured_ports(tmp_path / "absent") == set()


def test_port_of_a_listening_process_is_found_by_its_name() -> None:
    my_name = Path("/proc/self/comm").read_text().rstrip("\n")
    with socket.create_server(("127.0.0.1", 0)) as four, socket.socket(socket.AF_INET6) as unbound:
        found = listening_ports({my_name})
        assert four.getsockname()[1] in found
        assert listening_ports({"zs-no-such-name"}) == set()
        assert unbound.fileno() >= 0
    assert four.fileno() == -1


def test_connected_socket_is_not_taken_for_a_listening_one() -> None:
    my_name = Path("/proc/self/comm").read_text().rstrip("\n")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert client.getsockname()[1] not in listening_ports({my_name})


def test_https_and_ssh_are_always_protected() -> None:
    assert ssh_ports()
    assert protected_ports(8443) == {8443} | ssh_ports()
