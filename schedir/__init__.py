"""Pipeline-parallel training schedules: compile them, predict their timeline, really train with them, compare, draw.

    import schedir

    program = schedir.build_program("1f1b", num_devices=4, num_micro_batches=8)
    graph = schedir.compile_program(program, recompute="never")
    predicted = schedir.simulate(graph, schedir.UniformCosts(forward=1.0, backward=2.0))
    print(schedir.metrics(predicted))
    schedir.gantt(predicted).savefig("gantt.png")

| to …               | there is                                                                              | which gives      |
|--------------------|---------------------------------------------------------------------------------------|------------------|
| order the work     | build_program(name, …), load_program(path); names: `schedir --help`                   | Program          |
| compile and verify | compile_program(program, recompute=)                                                  | TaskGraph        |
| say what it costs  | UniformCosts(forward=, backward=, …), load_costs(path), executor.profile(recipe)      | a cost model     |
| say where it runs  | load_cluster(path)                                                                    | a cluster        |
| predict            | simulate(graph, costs, cluster=), monte_carlo(graph, costs, samples=)                 | Timeline, draws  |
| train              | train(graph, Pipeline(stages, loss=, optimizer=), mini_batches)                       | run.timeline     |
| read it            | metrics(timeline), compare(predicted, measured)                                       | figures          |
| draw and keep it   | gantt(*timelines), write_trace(path, *timelines), load_timeline(path), save_costs     | files            |

What a user can cause raises a SchedirError (a ValueError) of one line: the value, the rule, the remedy. The command line is
`schedir --help`; README.md and docs/ say the rest.

Names are imported when they are first used: `import schedir` loads no dependency, and no command or script pays for a back
end that it does not use.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from executor import Clip, Pipeline, Recipe, Trainer, train
    from executor.model.cutting.split import split
    from plots import gantt
    from schedir.compiler import compile_program, load_timeline, load_timelines
    from schedir.costs.cluster.cluster_file import load_cluster
    from schedir.costs.files.costs_file import load_costs, save_costs
    from schedir.costs.table.table import TableCosts
    from schedir.costs.uniform import UniformCosts
    from schedir.errors import ArgumentError, DeadlockError, FormatError, ProgramError, RefusedError, RunError, SchedirError
    from schedir.interop.program_files import load_program
    from schedir.ir.graph import TaskGraph
    from schedir.ir.program import Program
    from schedir.schedules.registry import build_program
    from schedir.timeline.comparison.compare import compare
    from schedir.timeline.metrics.metrics import Metrics, metrics
    from schedir.timeline.timeline import Timeline
    from schedir.timeline.trace.trace import write_trace
    from simulator import monte_carlo, simulate

_HOMES = {
    "ArgumentError": "schedir.errors",
    "Clip": "executor",
    "DeadlockError": "schedir.errors",
    "FormatError": "schedir.errors",
    "Metrics": "schedir.timeline.metrics.metrics",
    "Pipeline": "executor",
    "Program": "schedir.ir.program",
    "ProgramError": "schedir.errors",
    "Recipe": "executor",
    "RefusedError": "schedir.errors",
    "RunError": "schedir.errors",
    "SchedirError": "schedir.errors",
    "TableCosts": "schedir.costs.table.table",
    "TaskGraph": "schedir.ir.graph",
    "Timeline": "schedir.timeline.timeline",
    "Trainer": "executor",
    "UniformCosts": "schedir.costs.uniform",
    "build_program": "schedir.schedules.registry",
    "compare": "schedir.timeline.comparison.compare",
    "compile_program": "schedir.compiler",
    "gantt": "plots",
    "load_cluster": "schedir.costs.cluster.cluster_file",
    "load_costs": "schedir.costs.files.costs_file",
    "load_program": "schedir.interop.program_files",
    "load_timeline": "schedir.compiler",
    "load_timelines": "schedir.compiler",
    "metrics": "schedir.timeline.metrics.metrics",
    "monte_carlo": "simulator",
    "save_costs": "schedir.costs.files.costs_file",
    "simulate": "simulator",
    "split": "executor.model.cutting.split",
    "train": "executor",
    "write_trace": "schedir.timeline.trace.trace",
}
"""The module that defines each public name."""

__all__ = [
    "ArgumentError",
    "Clip",
    "DeadlockError",
    "FormatError",
    "Metrics",
    "Pipeline",
    "Program",
    "ProgramError",
    "Recipe",
    "RefusedError",
    "RunError",
    "SchedirError",
    "TableCosts",
    "TaskGraph",
    "Timeline",
    "Trainer",
    "UniformCosts",
    "build_program",
    "compare",
    "compile_program",
    "gantt",
    "load_cluster",
    "load_costs",
    "load_program",
    "load_timeline",
    "load_timelines",
    "metrics",
    "monte_carlo",
    "save_costs",
    "simulate",
    "split",
    "train",
    "write_trace",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'schedir' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Leave out what needs torch where there is none, so that help(schedir) works."""
    missing = {name for name in __all__ if _HOMES[name] == "executor"} if find_spec("torch") is None else set()
    return sorted({*globals(), *__all__} - missing)
