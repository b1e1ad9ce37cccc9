"""At which of its addresses a process listens to the others.

    store's host ◀── address ── every process ── hello ──▶ Members ──▶ the address that the others can reach

Gloo by itself takes what the host's name stands for. On many systems that is a loopback address (127.0.1.1 in Debian's /etc/hosts,
127.0.0.1 where nobody knows the name), which no other host can reach.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address

INTERFACE = "GLOO_SOCKET_IFNAME"
"""Torch's variable with the network interface that gloo listens on: who sets it knows better than the routing table."""
_DISCARD_PORT = 9
"""Any port would do: nothing is sent to it."""


def address_towards(host: str) -> str:
    """Return the address from which this host reaches another; "" if there is no way to it."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asking:
            # of UDP: the routing table is asked, and nothing sent
            asking.connect((host, _DISCARD_PORT))
            return str(asking.getsockname()[0])
    return ""


def listening_address(own: str, others: Sequence[str]) -> str:
    """Return the address at which the others reach this process, given those from which all reach the store.

    The store may be on this very host, so that `own` is a loopback address: then the way to a process on another host tells. If
    there is none, all are on this host. "" if nothing is known, or the user has named an interface.
    """
    if os.environ.get(INTERFACE):
        return ""
    if not _is_loopback(own):
        return own
    ways = (address_towards(other) for other in others if other and not _is_loopback(other))
    return next((way for way in ways if way and not _is_loopback(way)), own)


def listening_text(address: str) -> str:
    """Say where a process listens, and what a user can do if that is wrong."""
    name = os.environ.get(INTERFACE)
    if name:
        return f"this process listens on interface {name}, which {INTERFACE} names"
    where = address or "the address of its host's name"
    return f"this process listens at {where}: if the others cannot reach that, name a network interface in {INTERFACE}"


def _is_loopback(address: str) -> bool:
    return bool(address) and ip_address(address).is_loopback
