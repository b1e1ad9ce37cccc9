"""What `print` shows is a few lines, whatever the size of the thing."""

from pathlib import Path

import torch

import schedir
from executor import Pipeline, Trainer, train
from executor.recipe.recipe import load_recipe
from simulator import monte_carlo, simulate
from tests.repository import ROOT

GRAPH = schedir.compile_program(schedir.build_program("1f1b", num_devices=4, num_micro_batches=8))
PREDICTED = simulate(GRAPH, schedir.UniformCosts())

# 1f1b, p = 4, m = 8, F = 1, B = 2: makespan (m + p - 1)(F + B) = 33, bubble (p - 1)/(m + p - 1) = 3/11, busy m (F + B) = 24.
METRICS = """\
<Metrics: makespan 33 s, 33 s per mini-batch, bubble 27.3 %
  devices: 4, busy 24 s, idle 9 s, at most 4 live activations
  memory: not modelled
  more: .devices, .stages, .links, .critical_path>"""

# Every task a tenth longer: 1/1.1 - 1 = -9.1 %, because of durations alone.
COMPARISON = """\
<Comparison: step predicted 33 s, measured 36.3 s: -9.1 %
  durations -9.1 %, structure +0.0 %, noise floor not known (1 measured)
  bubble of the whole run predicted 27.3 %, measured 27.3 %
  verdict: durations
  more: .predicted, .measured, .duration_error_by_kind, .ratios, .timelines>"""


def test_metrics() -> None:
    assert str(schedir.metrics(PREDICTED)) == METRICS


def test_metrics_name_the_steady_state_recomputation_and_memory_where_there_are_such() -> None:
    costs = schedir.load_costs(ROOT / "examples" / "stages.costs.toml")
    program = schedir.build_program("pipedream", num_devices=2, num_micro_batches=2)
    timeline = simulate(schedir.compile_program(program, recompute="always"), costs)

    lines = str(schedir.metrics(timeline)).splitlines()

    assert [line.split(":")[0].strip() for line in lines] == ["<Metrics", "steady", "recompute", "devices", "memory", "more"]
    assert lines[4].startswith("  memory: peak ")


def test_a_comparison() -> None:
    longer = simulate(GRAPH, schedir.UniformCosts(forward=1.1, backward=2.2))

    assert str(schedir.compare(PREDICTED, longer)) == COMPARISON


def test_a_training_run_and_its_pipeline() -> None:
    graph = schedir.compile_program(schedir.build_program("gpipe", num_devices=2, num_micro_batches=2))
    layers = [torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)]
    pipeline = Pipeline(layers, loss=torch.nn.functional.mse_loss, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    run = train(graph, pipeline, [(torch.zeros(4, 4), torch.zeros(4, 4))] * 3)

    assert str(pipeline) == "<Pipeline: 2 stages, 40 parameters>"
    assert str(run).startswith("<Run of gpipe: 3 losses, first ")
    assert len(str(run).splitlines()) == 2


def test_costs_clusters_draws_and_recipes() -> None:
    folder = ROOT / "examples"
    costs, cluster = schedir.load_costs(folder / "stages.costs.toml"), schedir.load_cluster(folder / "h100-64.cluster.toml")

    assert str(costs).endswith("stages.costs.toml: 1 stage and a default for all others, micro-batches of 1, assumed>")
    assert str(cluster) == "<Cluster h100-64: 64 devices on 8 hosts, links: nvlink, infiniband>"
    assert str(load_recipe("executor.recipe.ready_made:mlp")).startswith("<Recipe MLP: random vectors")
    assert str(monte_carlo(GRAPH, schedir.UniformCosts(), samples=3, jitter=0.1)).startswith("<MonteCarlo: 3 draws, seed 0, ")


def test_a_trainer_and_its_checkpoint(tmp_path: Path) -> None:
    with Trainer(
        [torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)],
        schedule="xpipe",
        num_micro_batches=2,
        loss=torch.nn.functional.mse_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        workers="threads",
    ) as trainer:
        trainer.step(torch.zeros(4, 4), torch.zeros(4, 4))
        assert str(trainer) == "<Trainer of xpipe: 2 stages on 2 devices (threads), after 1 mini-batches>"
        trainer.save(tmp_path)
        found = trainer.load(tmp_path)

    assert str(trainer).endswith(", after 1 mini-batches, closed>")
    assert "mini_batch=1, schedule='xpipe', seed=0" in str(found)
    assert len(str(found)) < 500 + len(str(tmp_path))
