"""Two hosts on this machine: namespaces of the kernel, joined by a pair of virtual network devices.

    host a  hosta, 192.0.2.1  eth0 ════════ eth0  192.0.2.2, hostb  host b

Each has its own network (its own loopback too), name, processes, mounts and clock: `perf_counter` of one differs from that of the
other by exactly what was asked for. Memory, cores and files are shared. A host lives as long as its first process, and that until
its input is closed; so nothing is left, however the test ends. Nothing of it is seen outside, not even the network devices.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

TOOLS = ("unshare", "nsenter", "ip")
NAMES, ADDRESSES = ("hosta", "hostb"), ("192.0.2.1", "192.0.2.2")  # RFC 5737: of nobody
NAMESPACES = ("--net", "--uts", "--mount", "--ipc", "--pid", "--time")
LIMIT_S = 120.0
"""No tool needs so long, on however busy a machine."""


class NoHostsError(Exception):
    """This machine does not let us make hosts; the text says why."""


@dataclass(frozen=True)
class Host:
    """One of them."""

    name: str
    address: str
    first: subprocess.Popen[str]
    """Outside: ends with the host, and the host with it."""
    pid: int
    """Of its first process, as seen from outside."""

    def words(self, command: Sequence[str], *, namespaces: Sequence[str] = NAMESPACES) -> list[str]:
        """Return the command line by which a command runs on this host."""
        return ["nsenter", f"--target={self.pid}", *namespaces, f"--wd={Path.cwd()}", *command]

    def start(self, command: Sequence[str], *, environment: dict[str, str], output: IO[str]) -> subprocess.Popen[str]:
        """Start a command, which writes both its outputs to a file."""
        return subprocess.Popen(self.words(command), env=environment, stdout=output, stderr=subprocess.STDOUT, text=True)

    def is_idle(self) -> bool:
        """Return True if nothing runs on it but its first process."""
        return _processes_of(self.pid) <= {self.pid}

    def cut_off(self) -> None:
        """Take its network down."""
        _checked(self.words(["ip", "link", "set", "eth0", "down"]))


@contextmanager
def two_hosts(*, offset_s: int) -> Iterator[tuple[Host, Host]]:
    """Make two hosts; the clock of the second is ahead by `offset_s`. Raises NoHostsError where that is not possible."""
    if os.geteuid() != 0:
        raise NoHostsError("only root may make hosts of namespaces")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise NoHostsError(f"there is no {missing[0]} here")
    made: list[Host] = []
    try:
        for name, address, ahead in zip(NAMES, ADDRESSES, (0, offset_s), strict=True):
            made.append(_host(name, address, ahead))
        _join(*made)
        yield made[0], made[1]
    finally:
        for host in made:
            host.first.kill()  # its child is killed with it (--kill-child), and as the first of its host takes all others along
            host.first.communicate(timeout=LIMIT_S)


def _host(name: str, address: str, ahead_s: int) -> Host:
    """Make a host without a network."""
    apart = ["unshare", *NAMESPACES, f"--monotonic={ahead_s}", f"--boottime={ahead_s}", "--fork", "--kill-child", "--mount-proc"]
    lives = f"hostname {name} && ip link set lo up && echo lives && exec cat"
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    first = subprocess.Popen([*apart, "sh", "-c", lives], text=True, **piped)  # type: ignore[call-overload]  # of the pipes' types
    if first.stdout.readline() != "lives\n":
        first.kill()
        raise NoHostsError(f"this machine makes no hosts of namespaces: {first.communicate(timeout=LIMIT_S)[1].strip()}")
    try:
        [child] = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text(encoding="ascii").split()
    except (OSError, ValueError) as error:  # not every kernel lists them
        first.kill()
        raise NoHostsError(f"this machine does not say which process is the first of a host: {error}") from error
    return Host(name, address, first, int(child))


def _join(a: Host, b: Host) -> None:
    """Connect two hosts, and nobody else, by a network."""
    try:
        # only host a's network, not its processes: the number of b's is that of outside
        pair = ["ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", str(b.pid)]
        _checked(a.words(pair, namespaces=["--net"]))
        for host in (a, b):
            _checked(host.words(["ip", "address", "add", f"{host.address}/24", "dev", "eth0"]))
            _checked(host.words(["ip", "link", "set", "eth0", "up"]))
    except subprocess.CalledProcessError as error:
        raise NoHostsError(f"this machine connects no namespaces: {error.stderr.strip()}") from error


def _processes_of(pid: int) -> set[int]:
    """Return all processes, as seen from outside, in the name space of one of them."""
    own, found = (Path(f"/proc/{pid}/ns/pid")).readlink(), set[int]()
    for process in Path("/proc").glob("[0-9]*"):
        # one that ends meanwhile is none of them any more
        with suppress(OSError):
            if (process / "ns/pid").readlink() == own:
                found.add(int(process.name))
    return found


def _checked(words: list[str]) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout
