"""Pipeline-parallel training schedules: compile them, predict their timeline, really train with them, compare, draw.

Names are imported when they are first used: `import schedir` loads no dependency, and no command or script pays for a back
end that it does not use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from executor import Pipeline, train
    from plots import gantt
    from schedir.compiler import compile_program, load_timeline
    from schedir.costs.cluster import load_cluster
    from schedir.costs.files import load_costs
    from schedir.costs.table import TableCosts
    from schedir.costs.uniform import UniformCosts
    from schedir.errors import ArgumentError, DeadlockError, FormatError, ProgramError, RefusedError, RunError, SchedirError
    from schedir.interop.program_files import load_program
    from schedir.ir.graph import TaskGraph
    from schedir.ir.program import Program
    from schedir.schedules.registry import build_program
    from schedir.timeline.compare import compare
    from schedir.timeline.metrics import Metrics, metrics
    from schedir.timeline.timeline import Timeline
    from simulator import monte_carlo, simulate

_HOMES = {
    "ArgumentError": "schedir.errors",
    "DeadlockError": "schedir.errors",
    "FormatError": "schedir.errors",
    "Metrics": "schedir.timeline.metrics",
    "Pipeline": "executor",
    "Program": "schedir.ir.program",
    "ProgramError": "schedir.errors",
    "RefusedError": "schedir.errors",
    "RunError": "schedir.errors",
    "SchedirError": "schedir.errors",
    "TableCosts": "schedir.costs.table",
    "TaskGraph": "schedir.ir.graph",
    "Timeline": "schedir.timeline.timeline",
    "UniformCosts": "schedir.costs.uniform",
    "build_program": "schedir.schedules.registry",
    "compare": "schedir.timeline.compare",
    "compile_program": "schedir.compiler",
    "gantt": "plots",
    "load_cluster": "schedir.costs.cluster",
    "load_costs": "schedir.costs.files",
    "load_program": "schedir.interop.program_files",
    "load_timeline": "schedir.compiler",
    "metrics": "schedir.timeline.metrics",
    "monte_carlo": "simulator",
    "simulate": "simulator",
    "train": "executor",
}
"""The module that defines each public name."""

__all__ = [
    "ArgumentError",
    "DeadlockError",
    "FormatError",
    "Metrics",
    "Pipeline",
    "Program",
    "ProgramError",
    "RefusedError",
    "RunError",
    "SchedirError",
    "TableCosts",
    "TaskGraph",
    "Timeline",
    "UniformCosts",
    "build_program",
    "compare",
    "compile_program",
    "gantt",
    "load_cluster",
    "load_costs",
    "load_program",
    "load_timeline",
    "metrics",
    "monte_carlo",
    "simulate",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'schedir' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
