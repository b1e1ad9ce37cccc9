"""From a cluster to what lanes share."""

from typing import Any

import pytest
from hypothesis import given

from schedir.costs.cluster.cluster import Cluster
from schedir.costs.cluster.hardware import Device, Joins, LinkLevel, Owner, Sharing
from schedir.costs.uniform import UniformCosts
from schedir.errors import ArgumentError, RefusedError
from schedir.ir.graph import TaskGraph
from schedir.timeline.metrics.metrics import metrics
from simulator import monte_carlo, simulate
from simulator.contention import conditions_of
from tests.simulator.doubles import CostsWithBytes, graph_of
from tests.strategies import graphs

COSTS = UniformCosts(forward=1.0, backward=1.0, input_grad=0.5, weight_grad=0.5, transfer_bytes=2e9)


def cluster(num_hosts: int = 3, devices_per_host: int = 1, *, sharing: Sharing = Sharing.NONE, **given: Any) -> Cluster:
    """Return hosts joined by 1 GB/s each way, so that a transfer of COSTS takes 2 s."""
    per = given.pop("per", Owner.DEVICE)
    latency = given.pop("latency", 0.0)
    level = LinkLevel(name="ethernet", joins=Joins.CLUSTER, bandwidth=1e9, latency=latency, sharing=sharing, per=per)
    return Cluster(name="test", num_hosts=num_hosts, devices_per_host=devices_per_host, links=(level,), **given)


def shared_links(graph: TaskGraph, found: Cluster) -> list[tuple[str, set[str]]]:
    """Return (rule, links) of all that links share."""
    conditions = conditions_of(graph, found, found.times(graph, COSTS))
    return [(thing.rule.value, {str(graph.lanes[lane]) for lane in thing.demand}) for thing in conditions.shared]


def test_links_without_sharing_keep_a_run_static() -> None:
    graph = graph_of("1f1b", 3, 3)

    assert not conditions_of(graph, cluster(), cluster().times(graph, COSTS))
    assert simulate(graph, COSTS, cluster=cluster()).meta["engine"] == "in-order"


@given(graph=graphs(modes=("never", "always")))
def test_both_engines_agree_to_the_last_bit_on_links_with_bandwidth(graph: TaskGraph) -> None:
    joined = cluster(5, latency=0.3)
    runs = [simulate(graph, COSTS, cluster=joined, engine=engine) for engine in ("in-order", "simpy")]

    assert runs[0].start.tobytes() == runs[1].start.tobytes()
    assert runs[0].end.tobytes() == runs[1].end.tobytes()


def test_a_device_sends_to_both_neighbours_by_one_card_and_receives_by_another() -> None:
    graph = graph_of("1f1b", 3, 3)

    assert shared_links(graph, cluster(sharing=Sharing.FAIR)) == [
        ("fair", {"link 0->1", "link 2->1"}),  # into device 1
        ("fair", {"link 1->0", "link 1->2"}),  # out of device 1
    ]


def test_devices_of_a_host_share_its_card() -> None:
    graph = graph_of("1f1b", 4, 4)
    found = shared_links(graph, cluster(2, 2, sharing=Sharing.FIFO, per=Owner.HOST))

    assert ("fifo", {"link 0->1", "link 1->0", "link 1->2"}) in found  # out of host 0


@pytest.mark.parametrize("sharing", [Sharing.FAIR, Sharing.FIFO])
def test_what_only_one_link_uses_is_not_shared(sharing: Sharing) -> None:
    assert simulate(graph_of("1f1b", 2, 4), COSTS, cluster=cluster(2, sharing=sharing)).meta["engine"] == "in-order"


def test_transfers_that_take_no_time_share_nothing() -> None:
    graph = graph_of("1f1b", 3, 3)

    assert simulate(graph, UniformCosts(transfer=0.5), cluster=cluster(sharing=Sharing.FAIR)).meta["engine"] == "in-order"


@pytest.mark.parametrize(("sharing", "expected"), [(Sharing.NONE, 22.0), (Sharing.FAIR, 24.0), (Sharing.FIFO, 23.0)])
def test_contention_makes_a_run_longer(sharing: Sharing, expected: float) -> None:
    # 1F2 leaves at 12, while 1B0 is on its way to 13: alone it is in at 14, behind 1B0 at 15, sharing with 1B0 and 1B1 at 16
    timeline = simulate(graph_of("1f1b", 3, 3), COSTS, cluster=cluster(sharing=sharing))

    assert timeline.makespan_s == expected
    assert timeline.meta["engine"] == ("in-order" if sharing is Sharing.NONE else "simpy")


def test_in_order_refuses_contention_with_the_reason() -> None:
    with pytest.raises(RefusedError, match=r"engine 'in-order' cannot do contention: devices or links that share something"):
        simulate(graph_of("1f1b", 3, 3), COSTS, cluster=cluster(sharing=Sharing.FAIR), engine="in-order")


def test_pipeline_devices_on_one_physical_device_take_turns() -> None:
    # two stages whose forwards and backwards would overlap: all work is done one after the other, 4 x (1 + 2) x 2 stages
    shared = cluster(1, 1, pipeline_devices=((0,), (0,)))
    timeline = simulate(graph_of("gpipe", 2, 4), UniformCosts(transfer_bytes=1.0), cluster=shared)

    assert timeline.makespan_s == pytest.approx(24.0)


@pytest.mark.parametrize(("cores", "expected"), [(1, 24.0), (2, 15.0), (8, 15.0)])
def test_devices_share_the_cores_of_their_host(cores: int, expected: float) -> None:
    host = cluster(1, 2, cores=cores)
    timeline = simulate(graph_of("gpipe", 2, 4), UniformCosts(transfer=0.0), cluster=host)

    assert timeline.makespan_s == pytest.approx(expected)


@pytest.mark.parametrize(("cores", "expected"), [(2, 24.0), (3, 18.0), (4, 15.0)])
def test_every_member_of_a_group_needs_a_core_of_its_host(cores: int, expected: float) -> None:
    """Two pipeline devices of two members each: side by side they need 4 cores, alone 2. gpipe p=2 m=4, F=1, B=2: 12 + 12 s of
    work, of which 9 + 9 run side by side: on 2 cores all one after the other, on 3 at 3/4 of the speed, 9 s becoming 12."""
    host = cluster(1, 4, cores=cores, tensor_parallel=2)
    timeline = simulate(graph_of("gpipe", 2, 4), UniformCosts(transfer=0.0), cluster=host)

    assert timeline.makespan_s == pytest.approx(expected)


def test_a_device_that_slows_down_during_the_run_takes_longer_from_then_on() -> None:
    # one device, 4 forwards and 4 backwards of 1: half done at 3 of 8, the other 5 at half speed
    slowing = Device(speed=1.0, speed_changes=((3.0, 0.5),))
    found = cluster(1, 1, device=slowing)

    timeline = simulate(graph_of("gpipe", 1, 4), COSTS, cluster=found)

    assert timeline.makespan_s == 13.0
    assert timeline.meta["engine"] == "simpy"
    assert timeline.meta["cluster"]["speed_changes"] == [[[3.0, 0.5]]]
    with pytest.raises(RefusedError, match="engine 'in-order' cannot do speeds that change during the run"):
        simulate(graph_of("gpipe", 1, 4), COSTS, cluster=found, engine="in-order")


def test_a_group_slows_down_with_the_slowest_of_its_members() -> None:
    # speed 2 until 1: 2 of 8 done; speed 1 until 3: 4 done; speed 0.5, of another member, for the other 4
    found = cluster(
        1,
        2,
        device=Device(speed=2.0, speed_changes=((1.0, 1.0),)),
        overrides={1: Device(speed=4.0, speed_changes=((3.0, 0.5),))},
        tensor_parallel=2,
    )

    assert simulate(graph_of("gpipe", 1, 4), COSTS, cluster=found).makespan_s == 11.0


def test_monte_carlo_simulates_sample_by_sample_where_something_is_shared() -> None:
    graph = graph_of("1f1b", 3, 3)
    shared = cluster(sharing=Sharing.FAIR)

    found = monte_carlo(graph, COSTS, samples=3, seed=2, jitter=0.1, cluster=shared)

    assert found.makespan_s[0] == simulate(graph, COSTS, cluster=shared, seed=2, jitter=0.1).makespan_s


def test_limits_and_hosts_come_from_the_cluster_and_the_verdict_says_what_is_reserved() -> None:
    small = Device(memory=80e9, reserved=6e9)
    costs = CostsWithBytes(UniformCosts(transfer=0.0), activations=53e9, weights=38.2e9)

    timeline = simulate(graph_of("gpipe", 2, 1), costs, cluster=cluster(1, 2, device=small))

    assert timeline.meta["limit_bytes"] == [74_000_000_000] * 2
    assert timeline.meta["hosts"] == [0, 0]
    figures = metrics(timeline)
    assert figures.fits is False
    assert figures.verdict == (
        "device 0: 91.2 GB > 74.0 GB (80 GB less 6 GB reserved): activations 53.0 GB at 0 s: recompute, smaller micro_batch_size"
    )  # the line of formats/README.md


def test_a_mini_batch_counts_the_samples_of_all_replicas_of_the_pipeline() -> None:
    costs = UniformCosts(micro_batch_sizes=(3, 3, 2), transfer=0.0)

    meta = simulate(graph_of("gpipe", 2, 3), costs, cluster=cluster(4).parallel(data=2)).meta

    assert (meta["micro_batch_size"], meta["mini_batch_size"], meta["data_parallel"]) == (None, 16, 2)


def test_a_limit_that_is_given_replaces_the_clusters() -> None:
    costs = CostsWithBytes(UniformCosts(transfer=0.0), weights=10)

    timeline = simulate(graph_of("gpipe", 2, 1), costs, cluster=cluster(1, 2, device=Device(memory=80e9)), memory_limit=5)

    assert metrics(timeline).verdict == "device 0: 10 B > 5 B: weights 10 B at 0 s: more devices"


def test_notes_are_those_of_costs_and_cluster() -> None:
    timeline = simulate(graph_of("1f1b", 3, 3), COSTS, cluster=cluster())

    assert timeline.meta["notes"] == ["memory is not computed: uniform costs carry no bytes"]
    assert timeline.meta["cluster"]["name"] == "test"
    assert timeline.meta["link_bytes"]["link 0->1"] == 6_000_000_000


def test_devices_that_are_threads_share_the_cores_of_their_host() -> None:
    """gpipe p=3 m=3, F = B = 1, on 2 cores: only 0F2, 1F1, 2F0 and 2B0, 1B1, 0B2 run three at a time, at 2/3 of their speed,
    so both take 1.5 s: 10 s become 11 s."""
    graph = graph_of("gpipe", 3, 3)
    timeline = simulate(graph, UniformCosts(forward=1.0, backward=1.0), cores=2)
    spans = {span.label: (span.start_s, span.end_s) for span in timeline.records()}

    assert [spans[label] for label in ("0F2", "1F1", "2F0")] == [(2.0, 3.5)] * 3
    assert [spans[label] for label in ("2B0", "1B1", "0B2")] == [(7.5, 9.0)] * 3
    assert timeline.makespan_s == 11.0
    assert (timeline.meta["engine"], timeline.meta["cores"]) == ("simpy", 2)


def test_a_task_is_slowed_only_while_others_compute() -> None:
    """1f1b p=2 m=2, F = 1, B = 2, 1 core: 0F1 and 1F0 share it until both end at 3; 1B0 has it alone to 5; then 0B0 and 1F1
    share: 1F1 ends at 7, 0B0, a half done, shares with 1B1 to 9 and 1B1, a half done, shares with nothing: 10; 0B1 to 12."""
    timeline = simulate(graph_of("1f1b", 2, 2), UniformCosts(forward=1.0, backward=2.0), cores=1)
    spans = {span.label: (span.start_s, span.end_s) for span in timeline.records()}

    assert spans["0F1"] == spans["1F0"] == (1.0, 3.0)
    assert (spans["1B0"], spans["0B0"], spans["1F1"]) == ((3.0, 5.0), (5.0, 9.0), (5.0, 7.0))
    assert (spans["1B1"], spans["0B1"]) == ((7.0, 10.0), (10.0, 12.0))


@given(graph=graphs(modes=("never", "always")))
def test_one_core_is_never_idle_and_never_works_twice(graph: TaskGraph) -> None:
    """Without latency some task can always run, so the run takes as long as all work together."""
    costs = UniformCosts(forward=1.0, backward=1.5, input_grad=0.75, weight_grad=0.75, update=0.25)
    work = float(costs.times(graph).duration[: graph.num_compute_tasks].sum())

    assert simulate(graph, costs, cores=1).makespan_s == pytest.approx(work)


@given(graph=graphs(modes=("never", "always")))
def test_cores_for_all_devices_slow_nobody(graph: TaskGraph) -> None:
    alone, beside = (simulate(graph, COSTS, cores=cores) for cores in (None, graph.program.num_devices))

    assert alone.end.tobytes() == beside.end.tobytes()


def test_samples_share_cores_too() -> None:
    found = monte_carlo(graph_of("gpipe", 2, 2), UniformCosts(forward=1.0, backward=2.0), samples=3, jitter=1e-9, cores=1)

    assert found.makespan_s == pytest.approx([12.0] * 3)  # 2 devices x 2 micro-batches x 3 s on one core


def test_cores_beside_a_cluster_and_wrong_numbers_are_refused() -> None:
    graph = graph_of("1f1b", 3, 3)

    with pytest.raises(
        ArgumentError, match=r"cores 2 are those of a single host, but cluster test has its own: state hosts\.cores"
    ):
        simulate(graph, COSTS, cluster=cluster(), cores=2)
    with pytest.raises(ArgumentError, match="cores 0 must be"):
        simulate(graph, COSTS, cores=0)
    with pytest.raises(RefusedError, match="engine 'in-order' cannot do contention"):
        simulate(graph, COSTS, cores=2, engine="in-order")
