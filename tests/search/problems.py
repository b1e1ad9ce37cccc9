"""Problems that the tests of the search share."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from schedir.costs.uniform import UniformCosts
from schedir.ir.compile_options import CompileOptions
from schedir.search.problem.problem import Backward, Limits, Objective, Problem, StagePlacement
from tests.strategies import SECONDS


def problem_of(
    devices: int, micro_batches: int, *, live: int | None = None, times: dict[str, Any] | None = None, **options: Any
) -> Problem:
    """Return a problem of uniform costs, F = I = W = 1 if no times are given."""
    return Problem(
        num_devices=devices,
        num_micro_batches=micro_batches,
        costs=UniformCosts(**(times or {})),
        limits=Limits(None if live is None else (live,)),
        **options,
    )


@st.composite
def drawn_times(draw: DrawFn, num_stages: int) -> dict[str, Any]:
    """Draw the times of uniform costs: one for all stages, or one each."""
    time = SECONDS | st.lists(SECONDS, min_size=num_stages, max_size=num_stages)
    names = ["forward", "input_grad", "weight_grad", *draw(st.sampled_from([[], ["backward"]]))]
    return {name: draw(time) for name in names} | {"transfer": draw(SECONDS), "update": draw(SECONDS)}


@st.composite
def problems(draw: DrawFn, *, most_devices: int = 3, most_micro_batches: int = 5) -> Problem:
    """Draw a problem whose limit admits one micro-batch at a time."""
    devices, m, stages = draw(st.integers(1, most_devices)), draw(st.integers(1, most_micro_batches)), draw(st.integers(1, 2))
    recompute = draw(st.sampled_from(["never", "always", "except-last"]))
    return problem_of(
        devices,
        m,
        live=draw(st.none() | st.integers(stages, 2 * devices * stages)),
        times=draw(drawn_times(devices * stages)),
        stages_per_device=stages,
        placement=draw(st.sampled_from(StagePlacement)),
        objective=draw(st.sampled_from(Objective)),
        backward=draw(st.none() | st.sampled_from(Backward)),
        lowering=CompileOptions((recompute,), draw(st.sampled_from(["early", "on-gradient"]))),
    )
