"""What the machine's own interfaces are: which one faces the network, its addresses, what its driver can do.

Nothing is changed here. Calls must not be made in a thread that runs an event loop (pyroute2 runs one of its own).
"""

from __future__ import annotations

import socket

from pyroute2 import IPRoute, NetlinkError
from pyroute2.netlink import NLM_F_REQUEST, genlmsg
from pyroute2.netlink.generic import GenericNetlinkSocket

from appliance.settings import ApplianceError

# uapi/linux/netdev.h, family `netdev`, since Linux 6.3.
NETDEV_CMD_DEV_GET = 1
NETDEV_XDP_ACT_BASIC = 1


class _Device(genlmsg):  # type: ignore[misc]
    prefix = "NETDEV_A_DEV_"
    nla_map = (
        ("NETDEV_A_DEV_UNSPEC", "none"),
        ("NETDEV_A_DEV_IFINDEX", "uint32"),
        ("NETDEV_A_DEV_PAD", "none"),
        ("NETDEV_A_DEV_XDP_FEATURES", "uint64"),
    )


def default_interface() -> str:
    """The interface of the default route. Errors: ApplianceError when there is none."""
    with IPRoute() as route:
        for family in (socket.AF_INET, socket.AF_INET6):
            for entry in route.get_default_routes(family=family):
                if (index := entry.get("oif")) is not None:
                    return socket.if_indextoname(index)
    raise ApplianceError("no interface has a default route", "name one with --iface, or try --lab")


def addresses(interface: str) -> list[str]:
    """The interface's addresses of global scope (not loopback, not link-local), IPv4 first."""
    with IPRoute() as route:
        index = socket.if_nametoindex(interface)
        found = [str(entry.get("address")) for entry in route.get_addr(index=index, scope=0)]
    return sorted(found, key=lambda address: ":" in address)


def driver_can_do_xdp(interface: str) -> bool | None:
    """Whether the driver says that it runs XDP programs natively; None when this kernel cannot tell (before 6.3)."""
    request = _Device()
    request["cmd"] = NETDEV_CMD_DEV_GET
    request["version"] = 1
    request["attrs"] = [("NETDEV_A_DEV_IFINDEX", socket.if_nametoindex(interface))]
    try:
        with GenericNetlinkSocket() as netlink:
            netlink.bind("netdev", _Device)
            answer = tuple(netlink.nlm_request(request, msg_type=netlink.prid, msg_flags=NLM_F_REQUEST))
            return bool(answer[0].get_attr("NETDEV_A_DEV_XDP_FEATURES") & NETDEV_XDP_ACT_BASIC)
    except (NetlinkError, OSError, IndexError, TypeError):
        return None
