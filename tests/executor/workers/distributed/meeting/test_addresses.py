"""Where a process listens: at an address that other hosts can reach, whatever a host's name stands for.

Addresses are those of documentation (RFC 5737, RFC 3849): no host has them.
"""

import socket

import pytest

from executor.workers.distributed.meeting import addresses
from executor.workers.distributed.meeting.addresses import INTERFACE, address_towards, listening_address, listening_text


@pytest.fixture(autouse=True)
def _no_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(INTERFACE, raising=False)


def test_the_way_to_this_very_host_is_its_loopback() -> None:
    assert address_towards("127.0.0.1") == "127.0.0.1"


def test_where_no_network_leads_to_a_host_there_is_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> None:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", unreachable)
    assert address_towards("192.0.2.1") == ""


def test_a_process_listens_where_it_reaches_the_store_from() -> None:
    assert listening_address("192.0.2.2", ["127.0.0.1"]) == "192.0.2.2"
    assert listening_address("2001:db8::2", ["::1"]) == "2001:db8::2"


def test_beside_the_store_it_listens_where_it_reaches_another_host_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Debian's /etc/hosts a host's own name stands for 127.0.1.1: whoever is beside the store reaches it by the loopback."""
    monkeypatch.setattr(addresses, "address_towards", {"192.0.2.2": "192.0.2.1"}.__getitem__)

    assert listening_address("127.0.1.1", ["127.0.0.1", "", "192.0.2.2"]) == "192.0.2.1"


def test_processes_of_one_host_listen_on_its_loopback() -> None:
    assert listening_address("127.0.0.1", ["127.0.0.1", "127.0.0.1"]) == "127.0.0.1"
    assert listening_address("::1", ["::1"]) == "::1"


def test_an_interface_that_the_user_names_goes_before_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INTERFACE, "eth7")

    assert listening_address("192.0.2.2", ["192.0.2.1"]) == ""
    assert listening_text("") == "this process listens on interface eth7, which GLOO_SOCKET_IFNAME names"


def test_who_cannot_be_reached_is_told_how_to_choose() -> None:
    assert listening_text("192.0.2.2").startswith("this process listens at 192.0.2.2: if the others cannot reach that, name ")
    assert "address of its host's name" in listening_text("")
