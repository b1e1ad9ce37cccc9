"""Two hosts, as far as one machine has them: two name spaces with a network between, and clocks that differ by an hour. One launch.

Not two machines: memory and cores are shared, and the network is the kernel's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from tests.distributed.hosts import Host, NoHostsError, two_hosts
from tests.distributed.on_hosts import SCHEDULES, trained
from tests.repository import ROOT

pytestmark = pytest.mark.slow
AHEAD_S = 3600
"""Of host b's clock: far more than any bound, so that an estimate cannot hit it by luck."""
LIMIT_S = 300.0
"""For anything that is waited for here, on however busy a machine."""
SCRIPT = str(Path(__file__).with_name("on_hosts.py"))


@dataclass
class Done:
    """What became of the processes, by number: one on each host."""

    found: list[dict[str, Any]]
    errors: list[str]
    codes: list[int]
    """Of torchrun's agents."""


def agent(host: Host, number: int, folder: Path) -> subprocess.Popen[str]:
    """Start torchrun as docs/distributed.md says, one process on this host."""
    words = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--node-rank", str(number)]
    address = ["--master-addr", "192.0.2.1", "--master-port", "29500"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    with (folder / f"output-{number}.txt").open("w", encoding="utf-8") as output:
        return host.start([*words, *address, SCRIPT, str(folder)], environment=environment, output=output)


def awaited(is_so: Callable[[], bool], about: str, folder: Path) -> None:
    """Return once something is so; fail with what was written so far if it does not come to be."""
    limit = monotonic() + LIMIT_S
    while not is_so():
        if monotonic() > limit:
            outputs = "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("output-*.txt")))
            pytest.fail(f"{about} did not come within {LIMIT_S:g} s:\n{outputs}")
        sleep(0.05)  # between two looks, as no other process can wake this one


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("hosts")
    with ExitStack() as stack:
        try:
            hosts = stack.enter_context(two_hosts(offset_s=AHEAD_S))
        except NoHostsError as reason:
            pytest.skip(str(reason))
        agents = [agent(host, number, folder) for number, host in enumerate(hosts)]
        settled = [folder / f"goes-on-{number}" for number in range(2)]
        awaited(lambda: all(path.exists() for path in settled) or any(one.poll() is not None for one in agents), "training", folder)
        hosts[1].cut_off()
        awaited(lambda: all(one.poll() is not None for one in agents), "the end of torchrun", folder)
        awaited(lambda: all(host.is_idle() for host in hosts), "the end of all processes", folder)
        told = [json.loads((folder / f"said-{number}.json").read_text(encoding="utf-8")) for number in range(2)]
    return Done([each["found"] for each in told], [each["error"] for each in told], [one.wait() for one in agents])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_two_hosts_train_as_threads_do_bit_for_bit(done: Done, schedule: str) -> None:
    expected = trained(schedule, "threads")

    for found in done.found:
        assert found[schedule]["losses"] == expected["losses"]
        assert found[schedule]["weights"] == expected["weights"]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_other_host_s_clock_is_found_out_within_the_bound_that_is_stated(done: Done, schedule: str) -> None:
    meta = done.found[0][schedule]["meta"]
    first, second = meta["processes"]

    assert [first["host"], second["host"]] == ["hosta", "hostb"]
    assert first["offset_s"] == first["bound_s"] == 0.0
    assert 0.0 < second["bound_s"] < LIMIT_S
    assert second["offset_s"] == pytest.approx(-AHEAD_S, rel=0, abs=second["bound_s"] + 1e-6)  # a float of an hour in nanoseconds
    assert meta["clock"] == second["bound_s"]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_transfer_between_hosts_ends_before_it_begins(done: Done, schedule: str) -> None:
    found = done.found[0][schedule]

    assert found["meta"]["causal"]
    assert found["shortest transfer"] >= 0.0


def test_hosts_that_lose_each_other_both_end_and_say_so(done: Done) -> None:
    """Host a keeps the store: it misses the other process; host b misses the store. No process is left on either (see `done`)."""
    first, second = done.errors

    assert first.startswith("process 1 (host hostb, device 1) ")
    assert "torchrun's agent" in second
    assert all(done.codes)
