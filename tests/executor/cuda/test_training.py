"""`train` with CUDA workers, on GPUs that are simulated: what is chosen, refused and reported."""

from __future__ import annotations

from operator import itemgetter
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from executor import training
from executor.model.pipeline import Pipeline
from executor.profiling.options import ProfileOptions
from executor.profiling.rehearsal import rehearse
from executor.recipe.ready_made import mlp as mlp_recipe
from executor.training import train
from executor.workers.cuda import start, team
from schedir.compiler import compile_program
from schedir.errors import ArgumentError, RefusedError
from schedir.schedules.registry import build_program
from schedir.workflows.comparing.compare_training import compare_training
from schedir.workflows.comparing.training_results import TrainingSetting
from tests.executor.cuda.streams import Machine
from tests.executor.cuda.test_workers import data_for, graph_of, pipeline_for
from tests.executor.small import structured
from tests.executor.small.models import batches
from tests.executor.small.skipping import compiled_with, pipeline_with, unet
from tests.executor.small.tied import train_tied


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("name", ["1f1b", "xpipe", "zb-h1"])
def test_cuda_workers_train_like_threads(name: str) -> None:
    graph = graph_of(name, 2, 4)
    runs = [train(graph, pipeline_for(graph), data_for(graph), workers=workers) for workers in ("threads", "cuda")]
    assert runs[0].losses == runs[1].losses
    for key, expected in runs[0].state_dict().items():
        assert torch.equal(runs[1].state_dict()[key], expected), key
    assert np.array_equal(runs[0].reads.version, runs[1].reads.version)


BUILDING = [(training, "make_plan"), (team, "CudaRecorder"), (team, "CudaWorkers"), (training, "TrainingCrew")]
"""What a training is put together of, in this order: its workers are the third."""


@pytest.mark.parametrize("part", BUILDING, ids=itemgetter(1))
def test_gpus_are_let_go_of_once_where_a_training_cannot_be_built(
    part: tuple[ModuleType, str], two_gpus: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RefusedError("no")

    monkeypatch.setattr(*part, refuse)
    graph = graph_of("1f1b", 2, 4)
    with pytest.raises(RefusedError, match="no"):
        train(graph, pipeline_for(graph), data_for(graph), workers="cuda")
    assert two_gpus.num_closed == 2


@pytest.mark.parametrize("part", BUILDING[1:], ids=itemgetter(1))
def test_gpus_are_let_go_of_once_where_a_rehearsal_cannot_be_built(
    part: tuple[ModuleType, str], two_gpus: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RefusedError("no")

    monkeypatch.setattr(*part, refuse)
    graph = graph_of("1f1b", 2, 4)
    options = ProfileOptions(warm_up=0, workers="cuda")
    with pytest.raises(RefusedError, match="no"):
        rehearse(graph.program, pipeline_for(graph), data_for(graph), recompute=["never"] * 2, options=options)
    assert two_gpus.num_closed == 2


@pytest.mark.usefixtures("two_gpus")
def test_a_timeline_says_which_gpus_took_part_and_what_they_held() -> None:
    graph = graph_of("1f1b", 2, 4)
    meta = train(graph, pipeline_for(graph), data_for(graph), workers="cuda").timeline.meta
    assert meta["workers"] == "cuda"
    assert meta["gpus"][1] == {"gpu": "simulated cuda:1", "allocated_bytes": 2, "reserved_bytes": 4}
    assert meta["clock"] > 0


@pytest.mark.usefixtures("two_gpus")
def test_devices_take_turns_on_fewer_gpus() -> None:
    graph = graph_of("pipedream", 4, 1)
    plain, shared = pipeline_for(graph), pipeline_for(graph)
    train(graph, plain, data_for(graph))
    run = train(graph, shared, data_for(graph), workers="cuda")
    assert run.timeline.graph.program.num_devices == 2
    assert run.timeline.graph.stage_devices() == ((0,), (0,), (1,), (1,))
    for key, expected in plain.state_dict().items():
        assert torch.equal(shared.state_dict()[key], expected), key


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("name", "stages"), [("1f1b", 2), ("zb-v", 4), ("1f1b", 4)], ids=["two", "V", "four on two"])
def test_tied_weights_train_like_with_threads(name: str, stages: int) -> None:
    """On two GPUs, on one of them, and where four devices take turns on two."""
    runs = [train_tied(name, 2 if name == "zb-v" else stages, 4, workers=workers) for workers in ("threads", "cuda")]
    assert runs[0].losses == runs[1].losses
    for key, expected in runs[0].state_dict().items():
        assert torch.equal(runs[1].state_dict()[key], expected), key


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("name", "num_stages"), [("1f1b", 4), ("pipedream", 4), ("xpipe", 4), ("zb-v", 4)])
def test_skip_connections_train_like_with_threads(name: str, num_stages: int) -> None:
    """Between two GPUs, of which each hosts two stages: some go over a link, some do not."""
    runs = []
    for workers in ("threads", "cuda"):
        made = pipeline_with(unet(num_stages))
        graph = compiled_with(made, name, (2 if name == "zb-v" else num_stages, 4))
        data = batches(graph.program.num_mini_batches)
        runs.append(train(graph, made, data, workers=workers, timeout=60))
    assert runs[0].losses == runs[1].losses
    for key, expected in runs[0].state_dict().items():
        assert torch.equal(runs[1].state_dict()[key], expected), key


def test_sharing_keeps_the_way_to_compile() -> None:
    tied = compile_program(build_program("1f1b", num_devices=3, num_micro_batches=4), skips=[(0, 2)], ties=[(0, 2)])
    assert start.on_fewer(tied, 2).options == tied.options
    graph = compile_program(build_program("1f1b", num_devices=3, num_micro_batches=4), recompute="always,never,except-last")
    assert start.on_fewer(graph, 1).options == graph.options
    assert start.on_fewer(graph, 3) is graph


def test_without_a_gpu_there_is_one_line() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    graph = graph_of("1f1b", 2, 4)
    with pytest.raises(RefusedError, match=r"workers 'cuda' need up to 2 GPUs, 0 are visible .*: use workers 'threads'"):
        train(graph, pipeline_for(graph), data_for(graph), workers="cuda")


class Shift(nn.Module):
    """Its weight's gradient is the very tensor that arrives, which lies in a slot."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.full((2, 4), 0.5, dtype=torch.float64))

    def forward(self, tensor: Tensor) -> Tensor:
        return tensor + self.shift


@pytest.mark.usefixtures("two_gpus")
def test_a_gradient_that_lies_in_lent_memory_is_kept_apart() -> None:
    """With one slot that is used again, a sum that begins in it would be overwritten by the next gradient."""
    graph = graph_of("gpipe", 2, 4)

    def pipeline() -> Pipeline:
        torch.manual_seed(1)
        stages = [Shift(), nn.Sequential(nn.Linear(4, 4, dtype=torch.float64), nn.Tanh())]
        return Pipeline(stages, loss=nn.functional.mse_loss, optimizer=lambda params: torch.optim.SGD(params, lr=0.5))

    data = data_for(graph) * 3
    threads, cuda = (train(graph, pipeline(), data, workers=workers) for workers in ("threads", "cuda"))
    assert threads.losses == cuda.losses


@pytest.mark.usefixtures("two_gpus")
def test_a_loss_with_buffers_goes_where_the_last_stage_runs_or_is_refused() -> None:
    def pipeline(stages: int) -> Pipeline:
        torch.manual_seed(1)
        model = [nn.Linear(4, 4) for _ in range(stages)]
        loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0, 4.0]))
        return Pipeline(model, loss=loss, optimizer=lambda params: torch.optim.SGD(params, lr=0.1))

    data = [(torch.randn(8, 4), torch.arange(8) % 4)]
    graph = graph_of("1f1b", 2, 4)
    losses = [train(graph, pipeline(2), data, workers=workers).losses for workers in ("threads", "cuda")]
    assert losses[0] == losses[1]
    with pytest.raises(RefusedError, match="loss CrossEntropyLoss has buffers, but the last stage runs on 2 devices"):
        train(graph_of("chimera", 2, 4), pipeline(2), data, workers="cuda")


@pytest.mark.usefixtures("two_gpus")
def test_stages_are_profiled_and_compared_on_gpus() -> None:
    """Four devices take turns on two GPUs, in the rehearsal as in training, and the prediction is of just that."""
    setting = TrainingSetting(rounds=1, repeats=1, draws=3, workers="cuda")
    program = build_program("1f1b", num_devices=4, num_micro_batches=2, num_mini_batches=5)
    recipe = mlp_recipe(num_layers=4, width=8, mini_batch_size=8)
    (trained,) = compare_training([program], recipe, setting)
    assert trained.graph.program.num_devices == 2
    assert trained.judged.predicted.timeline.graph is trained.judged.measured.graph is trained.graph
    assert trained.costs.source["workers"] == "cuda"
    assert trained.judged.measured.meta["workers"] == "cuda"


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("name", "stages_joined"), [("interleaved-1f1b", False), ("zb-v", False), ("chimera", True)])
def test_any_value_goes_between_gpus(name: str, *, stages_joined: bool) -> None:
    """Dicts, a dataclass, masks of booleans, integers, None and plain values lie in slots as far as they are tensors."""
    graph = graph_of(name, 2, 4)
    data = structured.data(3)

    def pipeline() -> Pipeline:
        stages = structured.stages()
        if stages_joined:
            stages = [Keywords(stages[0], stages[1]), Places(stages[2], stages[3])]
        return Pipeline(stages, loss=structured.loss, optimizer=structured.sgd)

    threads, cuda = (train(graph, pipeline(), data, workers=workers) for workers in ("threads", "cuda"))
    assert threads.losses == cuda.losses
    for key, expected in threads.state_dict().items():
        assert torch.equal(cuda.state_dict()[key], expected), key


class Keywords(nn.Module):
    """Two modules that hand on a dict, as one stage."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, ids: Tensor, **others: Any) -> Any:
        return self.second(**self.first(ids, **others))


class Places(nn.Module):
    """Two modules that hand on a tuple."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, values: Any) -> Any:
        return self.second(*self.first(values))


class Gives(nn.Module):
    """Hands on a tensor of another kind beside its output."""

    def __init__(self, other: Tensor) -> None:
        super().__init__()
        self.linear, self.other = nn.Linear(4, 4, dtype=torch.float64), other

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(x), self.other


class TakesFirst(nn.Module):
    def __init__(self, other: Tensor) -> None:
        super().__init__()
        self.other = other

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        assert other.layout is self.other.layout
        assert torch.equal(other.to_dense(), self.other.to_dense())
        return x


def handing(other: Tensor) -> Pipeline:
    torch.manual_seed(0)
    stages = [Gives(other), TakesFirst(other)]
    return Pipeline(stages, loss=nn.functional.mse_loss, optimizer=lambda params: torch.optim.SGD(params, lr=0.1))


@pytest.mark.usefixtures("two_gpus")
def test_a_sparse_tensor_is_handed_over_as_it_is() -> None:
    graph, other = graph_of("1f1b", 2, 4), torch.eye(4).to_sparse()
    losses = [train(graph, handing(other), data_for(graph), workers=workers).losses for workers in ("threads", "cuda")]
    assert losses[0] == losses[1]


@pytest.mark.filterwarnings("ignore:Sparse CSR:UserWarning", "ignore:Sparse invariant:UserWarning")
@pytest.mark.usefixtures("two_gpus")
def test_a_tensor_that_no_slot_takes_is_named_with_stage_and_micro_batch() -> None:
    graph = graph_of("1f1b", 2, 4)
    message = (
        r"the output of stage 0 for micro-batch 0 .* holds a sparse_csr tensor, for which a GPU has no slot: make it a dense one"
    )
    with pytest.raises(ArgumentError, match=message):
        train(graph, handing(torch.eye(4).to_sparse_csr()), data_for(graph), workers="cuda")


class Words(nn.Module):
    """An embedding whose gradients are sparse, of words that follow from numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 4, sparse=True, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.table((x.abs() * 10).long() % 9).sum(1)
        return output


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("name", ["1f1b", "zb-v", "chimera"])
def test_sparse_gradients_train_like_with_threads(name: str) -> None:
    """Those of chimera's two replicas are summed on one GPU and sent to the other."""
    runs = []
    for workers in ("threads", "cuda"):
        torch.manual_seed(3)
        graph = graph_of(name, 2, 4)
        rest = [nn.Linear(4, 4, dtype=torch.float64) for _ in range(graph.program.num_stages - 1)]
        made = Pipeline([Words(), *rest], loss=nn.functional.mse_loss, optimizer=lambda params: torch.optim.SGD(params, lr=0.1))
        runs.append(train(graph, made, data_for(graph), workers=workers))
    assert runs[0].losses == runs[1].losses
    for key, expected in runs[0].state_dict().items():
        assert torch.equal(runs[1].state_dict()[key], expected), key
