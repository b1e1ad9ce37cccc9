"""What a search finds against what is registered and what CP-SAT proves, and how often local search reaches a proved optimum.

    python -m benchmarks.search [--iterations 20000] [--seconds 60] [--small 60] [--write]

Orders are counted, not time: the same seed and iterations find the same orders on any machine. CP-SAT has as long as is given.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.sections import machine, table, write_section
from schedir.costs.uniform import UniformCosts
from schedir.search.branch import Branch
from schedir.search.found import AS_GOOD, Found, SolverLimits
from schedir.search.judge import Judge
from schedir.search.problem.problem import Limits, Objective, Problem, StagePlacement
from schedir.search.proofs.cp_sat import prove
from schedir.search.search import search_order

UNEVEN = {"forward": (1, 2, 1, 1.5), "input_grad": (1, 2, 1, 1), "weight_grad": (1, 1, 0.5, 1), "transfer": 0.3}
"""Times of four stages, one of them twice as long as the others."""

HEAD_AND_TAIL = {"forward": (1.5, 1, 1, 1, 1, 1, 1, 2), "input_grad": (1.5, 1, 1, 1, 1, 1, 1, 2), "weight_grad": 1, "transfer": 0.1}
"""Times of eight stages with an embedding before the first and a head behind the last."""

SHARES = (0.5, 1, 1, 1.5, 2, 3)
"""Times that the stages of small problems are drawn from."""


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table."""

    title: str
    problem: Problem


def case(title: str, shape: tuple[int, int], live: int | None, **options: Any) -> Case:
    """Return a case of (devices, micro-batches) and at most `live` activations on a device; F = I = W = 1 without `times`."""
    limits = Limits(None if live is None else (live,))
    costs = UniformCosts(**options.pop("times", {}))
    return Case(title, Problem(num_devices=shape[0], num_micro_batches=shape[1], costs=costs, limits=limits, **options))


V: dict[str, Any] = {"stages_per_device": 2, "placement": StagePlacement.V}
LOOP: dict[str, Any] = {"stages_per_device": 2, "placement": StagePlacement.LOOP}
SPAN: dict[str, Any] = {"objective": Objective.DEVICE_SPAN}

CASES = (
    case("F = I = W = 1", (4, 8), 4),
    case("F = I = W = 1, device span", (4, 8), 4, **SPAN),
    case("F = I = W = 1, device span", (4, 8), None, **SPAN),
    case("F = I = W = 1", (4, 8), 3),
    case("V, F = I = W = 1", (4, 8), 8, **V),
    case("V, F = I = W = 1", (4, 8), 6, **V),
    case("V, F = I = W = 1", (4, 8), 5, **V),
    case("loop, F = I = W = 1", (4, 8), 8, **LOOP),
    case("uneven stages", (4, 8), 4, times=UNEVEN),
    case("uneven stages, backward whole", (4, 8), 4, times={"forward": (1, 2, 1, 1.5), "backward": (2, 3, 2, 2), "transfer": 0.3}),
    case("V, head and tail", (4, 8), 8, times=HEAD_AND_TAIL, **V),
    case("head and tail", (8, 16), 5, times=HEAD_AND_TAIL),
    case("head and tail", (8, 32), 8, times=HEAD_AND_TAIL),
)


def small_problems(count: int) -> Iterator[Problem]:
    """Yield random problems of at most three devices and four micro-batches, always the same ones."""
    draw = random.Random(5)
    for _ in range(count):
        stages, devices, m = draw.choice((1, 1, 2)), draw.choice((2, 3)), draw.choice((3, 4))
        forward, input_grad, weight_grad = ([draw.choice(SHARES) for _ in range(devices * stages)] for _ in range(3))
        if draw.random() >= 0.7:  # all stages alike
            forward, input_grad, weight_grad = (row[:1] * len(row) for row in (forward, input_grad, weight_grad))
        yield Problem(
            num_devices=devices,
            num_micro_batches=m,
            stages_per_device=stages,
            placement=draw.choice(list(StagePlacement)),
            costs=UniformCosts(forward=forward, input_grad=input_grad, weight_grad=weight_grad, transfer=draw.choice((0, 0.25, 1))),
            limits=Limits((draw.randint(stages, devices * stages + 1),)),
            objective=draw.choice(list(Objective)),
        )


def optimum(problem: Problem, found: Found, seconds: float) -> tuple[float, bool]:
    """Return the best value that the search or the solver has, and whether it is proved."""
    if found.optimal:
        return found.best.value, True
    branch = Branch(problem, problem.placements()[0], Judge(problem))
    branch.enter_listed(random.Random(0), lambda: False)
    branch.enter(branch.in_turn(found.best.program))
    known = min(branch.pool, key=lambda candidate: candidate.score.value)
    limits = SolverLimits(seconds, workers=1)
    proof = prove(branch.tables, branch.room, branch.offsets, known=known, bound=branch.bound, limits=limits)
    values = [found.best.value] if proof.orders is None else [found.best.value, branch.enter(proof.orders).value]
    return min(values), min(values) <= proof.bound * AS_GOOD


def row_of(each: Case, iterations: int, seconds: float) -> list[object]:
    """Return one row of the table."""
    problem = each.problem
    begin = time.process_time()
    found = search_order(problem, iterations=iterations)
    spent = time.process_time() - begin
    best, proved = optimum(problem, found, seconds)
    registered = "none fits" if found.registered is None else f"{found.registered.value:g} ({found.registered.program.name})"
    limit = "-" if problem.limits.activations is None else problem.limits.activations[0]
    shape = f"{problem.num_devices} x {problem.num_micro_batches}"
    return [
        each.title,
        shape,
        limit,
        registered,
        f"{found.best.value:g}",
        f"{found.bound:g}",
        _proof(best, proved),
        f"{spent:.1f} s",
    ]


def _proof(best: float, proved: bool) -> str:
    return f"{best:g}" if proved else f"open, {best:g}"


def share_of_optima(count: int, iterations: int, seconds: float) -> str:
    """Say how many small problems local search solves to a proved optimum, and how far it is from it on the others."""
    reached, proved, worst, started = 0, 0, 0.0, 0
    for problem in small_problems(count):
        found = search_order(problem, iterations=iterations)
        best, is_proved = optimum(problem, found, seconds)
        if is_proved:
            proved += 1
            reached += found.best.value <= best * AS_GOOD
            worst = max(worst, found.best.value / best - 1)
            started += found.registered is not None and found.registered.value <= best * AS_GOOD
    return (
        f"Of {count} random problems with p ≤ 3 and m ≤ 4 (one or two stages per device, uneven times, a limit from tight to\n"
        f"1F1B's, either objective) CP-SAT proves {proved}; local search reaches {reached} of them in {iterations} iterations and\n"
        f"is at most {100 * worst:.1f} % above the others; the best registered schedule is optimal in {started}."
    )


def main() -> None:
    """Print the tables, and write them to docs/performance.md if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each proof")
    parser.add_argument("--small", type=int, default=60, help="random small problems")
    parser.add_argument("--write", action="store_true", help="replace the section of docs/performance.md")
    asked = parser.parse_args()
    head = ["problem", "p x m", "limit", "best registered", "found", "bound", "CP-SAT", "CPU"]
    rows = [row_of(each, asked.iterations, asked.seconds) for each in CASES]
    share = share_of_optima(asked.small, 4000, asked.seconds)
    body = (
        f"`python -m benchmarks.search --write`, on {machine('ortools')}; {asked.iterations} iterations, seed 0.\n"
        "`found` is without CP-SAT, `bound` by the work of the fullest device; `CP-SAT` is the optimum where it is proved in\n"
        f"{asked.seconds:g} s of one thread, else the best order known. CPU is that of the search alone.\n\n"
        f"{table(head, rows)}\n\n{share}"
    )
    print(body)
    if asked.write:
        write_section("Search", body)


if __name__ == "__main__":
    main()
