"""Real training through the CUDA workers on streams that are simulated; see `streams` for what counts as a race."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from executor.model.data import cut
from executor.model.pipeline import Pipeline
from executor.plan.plan import make_plan
from executor.run.runner import Runner
from executor.stage.feed import Autocast, Feed, ReadLog
from executor.stage.gradients import mean_over_members
from executor.training import train
from executor.workers.base import ExchangePlan
from executor.workers.cuda.clock import CudaRecorder
from executor.workers.cuda.driver import TorchDriver
from executor.workers.cuda.gpu import Gpu, Slots
from executor.workers.cuda.patience import Patience
from executor.workers.cuda.ports import PeerChannel, PeerReduction, Taker, move
from executor.workers.cuda.workers import CudaWorkers
from schedir.compiler import compile_program
from schedir.errors import ArgumentError, SchedirWarning
from schedir.ir.graph import TaskGraph
from schedir.schedules.registry import build_program
from tests.executor.cuda.streams import Machine, PlainEvent, PlainStream, RaceError, plain
from tests.executor.cuda.watched import WatchedCrew

CASES = [
    ("gpipe", 3, 4, {}),
    ("1f1b", 3, 5, {}),
    ("interleaved-1f1b", 2, 4, {}),
    ("zb-h1", 3, 4, {}),
    ("zb-v", 2, 4, {}),
    ("dualpipev", 2, 4, {}),
    ("chimera", 2, 4, {}),
    ("dualpipe", 2, 4, {}),
    ("pipedream", 3, 1, {}),
    ("pipedream", 4, 1, {"replicas": (2, 1, 1)}),
    ("xpipe", 3, 2, {}),
]


def graph_of(name: str, p: int, m: int, **options: Any) -> TaskGraph:
    return compile_program(build_program(name, num_devices=p, num_micro_batches=m, **options))


def pipeline_for(graph: TaskGraph) -> Pipeline:
    torch.manual_seed(3)
    sizes = range(graph.program.num_stages)
    stages = [nn.Sequential(nn.Linear(4, 4, dtype=torch.float64), nn.Tanh()) for _ in sizes]
    return Pipeline(stages, loss=nn.functional.mse_loss, optimizer=lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9))


def data_for(graph: TaskGraph) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(5)
    shape = (2 * graph.program.num_micro_batches, 4)
    numbers = [torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(2 * graph.program.num_mini_batches)]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


class Trained:
    """One pass of a graph through the CUDA workers."""

    def __init__(self, graph: TaskGraph, *, passes: int = 1) -> None:
        self.machine, self.pipeline = Machine(), pipeline_for(graph)
        gpus = [Gpu(torch.device("cuda", number), self.machine) for number in range(graph.program.num_devices)]
        recorder = CudaRecorder(gpus, graph.num_tasks, Patience(60.0))
        self.workers = CudaWorkers(graph, gpus, recorder=recorder, timeout_s=60.0)
        plan = make_plan(graph)
        feed = Feed(self.pipeline.loss, 0, Autocast.current(), ReadLog(graph), graph.program.num_micro_batches)
        crew = WatchedCrew(graph, self.pipeline, feed, workers=self.workers)
        crew.watch(self.machine, self.workers)
        runner = Runner(graph, plan, crew, workers=self.workers, recorder=self.workers.recorder)
        m = graph.program.num_micro_batches
        try:
            for number in range(passes):
                feed.load([part for one in data_for(graph) for part in cut(one, m, self.pipeline.loss_scales)], number)
                crew.begin()
                crew._inputs.clear()
                runner.run_once()
        finally:
            self.workers.close()
            crew.close()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_streams_train_like_threads_and_nothing_races(case: tuple[str, int, int, dict[str, Any]]) -> None:
    name, p, m, options = case
    graph = graph_of(name, p, m, **options)
    plain = pipeline_for(graph)
    train(graph, plain, data_for(graph))
    streamed = Trained(graph).pipeline.state_dict()
    for key, expected in plain.state_dict().items():
        assert torch.equal(streamed[key], expected), key


def test_every_task_is_recorded_and_none_starts_before_what_it_needs() -> None:
    graph = graph_of("chimera", 2, 4)
    recorder = Trained(graph).workers.recorder
    start, end = recorder.spans()
    apart = recorder.bound_s + 1e-6
    """How far the marks of two GPUs may be apart, on however busy a machine; and what is lost to rounding."""
    assert np.isfinite(start).all()
    assert (start <= end).all()
    for task in range(graph.num_tasks):
        for source in graph.sources(task).tolist():
            assert end[source] <= start[task] + apart


def test_a_slot_is_used_again_once_its_last_reader_is_done() -> None:
    """Under 1F1B stage s of p has p - s micro-batches on their way, so its link has no more inputs, and no more gradients."""
    trained = Trained(graph_of("1f1b", 4, 32), passes=2)
    assert trained.machine.num_allocated <= 2 * (4 + 3 + 2)


def _take_without_waiting(self: PeerChannel) -> Any:
    return super(PeerChannel, self).take()


def _give_back_at_once(self: Slots, slots: Any) -> None:
    for slot in slots:
        slot.free = ()
        self._free[slot.form].append(slot)


def test_the_simulated_streams_find_a_consumer_that_does_not_wait() -> None:
    graph = graph_of("1f1b", 3, 8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PeerChannel, "take", _take_without_waiting)
        with pytest.raises(RaceError):
            Trained(graph)


def wait_for(lock: threading.Lock, name: str) -> None:
    assert lock.acquire(timeout=60.0), name


@pytest.mark.parametrize("give_back", [Slots.give_back, _give_back_at_once], ids=["behind its readers", "at once"])
def test_the_simulated_streams_find_a_slot_that_is_free_too_early(give_back: Callable[..., Any]) -> None:
    machine = Machine()
    sender, receiver = (Gpu(torch.device("cuda", number), machine) for number in range(2))
    recorder = CudaRecorder([sender, receiver], 1, Patience(60.0))
    recorder.align()
    channel = PeerChannel(wait_for, "the output", task=0, ends=(sender, receiver), recorder=recorder)
    sent = torch.ones(3)
    machine.write(sent, sender.compute)
    channel.put((sent,))
    machine.read(channel.take()[0], receiver.compute)
    early = give_back is _give_back_at_once
    with pytest.MonkeyPatch.context() as patch, pytest.raises(RaceError) if early else nullcontext():
        patch.setattr(Slots, "give_back", give_back)
        channel.free()
        channel.put((sent,))


def test_what_is_sent_is_held_until_the_copy_is_done() -> None:
    machine = Machine()
    gpu = Gpu(torch.device("cuda", 0), machine)
    first, second = gpu.send.record_event(), gpu.send.record_event()
    gpu.hold("first", until=first)
    gpu.hold("second", until=second)  # the first look at `first` was when it was held
    assert [value for _, value in gpu._held] == ["second"]
    gpu.let_go()
    assert not gpu._held


def test_the_sum_of_replicas_is_waited_for() -> None:
    machine = Machine()
    home, away = (Gpu(torch.device("cuda", number), machine) for number in range(2))
    total = torch.ones(3)
    machine.write(total, home.compute)
    taker = Taker(wait_for, "the total", away)
    taker.put_from(home, (total, None))
    copy, nothing = taker.take()
    assert nothing is None
    machine.read(copy, away.compute)
    with pytest.raises(RaceError):
        machine.write(total, home.compute)  # send may still read it


def test_fewer_gpus_than_devices_are_refused() -> None:
    graph = graph_of("1f1b", 3, 4)
    with pytest.raises(ArgumentError, match="3 devices for 0 GPUs"):
        CudaWorkers(graph, [], recorder=CudaRecorder([], 1, Patience(60.0)), timeout_s=1.0)


def test_a_thread_has_a_context_of_its_gpu_before_its_first_task() -> None:
    """The first task of an evaluation is not recorded, so no event need come before its first product of matrices."""
    machine, graph, found = Machine(), graph_of("1f1b", 2, 4), []
    gpus = [Gpu(torch.device("cuda", number), machine) for number in range(2)]
    workers = CudaWorkers(graph, gpus, recorder=CudaRecorder(gpus, 1, Patience(60.0)), timeout_s=60.0)
    workers.run([lambda: found.append(machine.has_context()) for _ in gpus])
    workers.close()
    assert found == [True, True]


def test_a_copy_does_not_wait_for_what_another_sender_has_been_told_to_send() -> None:
    """Device 0 sends the activations of several micro-batches ahead of time; the gradients of device 2 do not queue behind them."""
    machine = Machine()
    first, middle, last = (Gpu(torch.device("cuda", number), machine) for number in range(3))
    forward, backward = torch.ones(3), torch.ones(2)
    for gpu, tensor in ((first, forward), (last, backward)):
        machine.write(tensor, gpu.compute)
        move([tensor], gpu, middle, made=gpu.compute.record_event())
    known = plain(last.send).clock
    assert known[plain(first.send).number] == 0
    assert known[plain(last.compute).number] > 0


class Pool(Machine):
    """Four streams of a GPU, handed out in turn to whoever asks, as torch does with 32."""

    def __init__(self) -> None:
        super().__init__()
        self._pool: list[PlainStream] = []
        self._asked = 0

    def stream(self, device: torch.device) -> PlainStream:
        if len(self._pool) < 4:
            self._pool.append(super().stream(device))
        self._asked += 1
        return self._pool[(self._asked - 1) % 4]


def test_streams_that_torch_hands_out_twice_are_not_taken_twice() -> None:
    machine = Pool()
    machine.stream(torch.device("cuda", 0))
    gpu = Gpu(torch.device("cuda", 0), machine)
    for _ in range(2):  # somebody else asks in between: torch is one behind its first again
        machine.stream(torch.device("cuda", 0))
    arriving = gpu.receive(Gpu(torch.device("cuda", 1), Machine()))
    assert len({plain(stream).number for stream in (gpu.compute, gpu.send, gpu.clock, arriving)}) == 4


def test_more_senders_than_torch_has_streams_share_one_knowingly() -> None:
    gpu = Gpu(torch.device("cuda", 0), Pool())
    first, second = (Gpu(torch.device("cuda", number), Machine()) for number in (1, 2))
    arriving = gpu.receive(first)
    with pytest.warns(SchedirWarning, match="cuda:0 receives from 2 GPUs, and torch has 32 streams for all that it does"):
        assert gpu.receive(second) is arriving


def test_a_new_slot_is_not_written_before_what_its_stream_was_told_by_others() -> None:
    """Memory that others have freed on a stream is given to a slot made there, though their work on it may not be done."""
    machine = Machine()
    sender, receiver = (Gpu(torch.device("cuda", number), machine) for number in range(2))
    tensor = torch.ones(2)
    plain(receiver.clock).clock[plain(receiver.clock).number] += 1  # somebody's kernel
    move([tensor], sender, receiver, made=sender.compute.record_event())
    assert plain(sender.send).clock[plain(receiver.clock).number] > 0


def test_a_total_that_is_what_one_member_sent_is_in_memory_of_its_own() -> None:
    """The others had no gradient; the slot is used again before the total is read."""
    machine = Machine()
    gpus = [Gpu(torch.device("cuda", number), machine) for number in range(2)]
    recorder = CudaRecorder(gpus, 1, Patience(60.0))
    recorder.align()
    plan = ExchangePlan(0, "the total", members=(0, 1), takers=(0, 1), total=partial(mean_over_members, num_averaged=1))
    reduction = PeerReduction(wait_for, plan, gpus=gpus, recorder=recorder)
    sent = torch.full((2,), 7.0)
    machine.write(sent, gpus[0].compute)
    reduction.member(0).put([sent])
    reduction.member(1).put([None])  # the last to come adds on its GPU
    [total] = reduction.taker(1).take()
    again = gpus[1].slots.take(sent)
    assert torch.equal(total, sent)
    assert total.data_ptr() != again.tensor.data_ptr()


def test_gpus_are_let_go_of_once_when_the_threads_have_ended() -> None:
    machine, graph = Machine(), graph_of("1f1b", 2, 4)
    gpus = [Gpu(torch.device("cuda", number), machine) for number in range(2)]
    workers = CudaWorkers(graph, gpus, recorder=CudaRecorder(gpus, 1, Patience(60.0)), timeout_s=60.0)
    workers.run([lambda: None for _ in gpus])
    assert (workers.is_open, machine.num_closed) == (True, 0)
    workers.close()
    workers.close()
    assert (workers.is_open, machine.num_closed) == (False, 2)


def test_a_gpu_that_has_failed_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, graph = Machine(), graph_of("1f1b", 2, 4)
    gpus = [Gpu(torch.device("cuda", number), machine) for number in range(2)]
    workers = CudaWorkers(graph, gpus, recorder=CudaRecorder(gpus, 1, Patience(60.0)), timeout_s=60.0)

    def failed(*_: object) -> bool:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(PlainEvent, "query", failed)
    workers.close()
    assert machine.num_closed == 0


def test_a_sparse_tensor_that_another_stream_uses_is_told_of_by_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's allocator knows no sparse tensors."""
    told: list[tuple[torch.Size, object]] = []
    stream = SimpleNamespace(device=torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "Stream", SimpleNamespace)
    monkeypatch.setattr(Tensor, "record_stream", lambda tensor, stream: told.append((tensor.shape, stream)))
    table = torch.sparse_coo_tensor(torch.tensor([[1, 3]]), torch.ones(2, 5), (4, 5), check_invariants=True)
    TorchDriver().used_on(table, stream)
    TorchDriver().used_on(torch.ones(3), stream)
    assert told == [(torch.Size([1, 2]), stream), (torch.Size([2, 5]), stream), (torch.Size([3]), stream)]
