"""`schedir check`: is this schedule right, and does it train right?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from schedir.cli.flags.flags import as_command, flag, switch
from schedir.cli.flags.options import GraphOptions, ScheduleOptions, ShapeOptions
from schedir.cli.flags.values import one_of
from schedir.cli.flags.workers import TIMEOUT_S, timeout_flag
from schedir.errors import ArgumentError


@dataclass(frozen=True, slots=True, kw_only=True)
class Proofs:
    """Proofs."""

    gradients: bool = switch(
        "--gradients",
        "Train briefly in float64 and compare: with the unpartitioned model, or, where nothing flushes, with a serial execution "
        "of the versions that the graph names.",
    )
    sends: str | None = flag(
        "--sends",
        one_of("buffered", "rendezvous"),
        "buffered|rendezvous",
        "rendezvous: sends block, and a deadlock is an error; buffered, if not given: it is a property that is told.",
    )
    timeout: float | None = timeout_flag()


@as_command
def check(
    schedule: Annotated[str, typer.Argument(metavar="SCHEDULE", help="A schedule's name, a file, or file.py:function.")],
    *,
    proofs: Proofs,
    shape: ShapeOptions,
    options: ScheduleOptions,
    lowering: GraphOptions,
) -> None:
    """Verify a schedule and explain what is wrong with it; --gradients proves that it trains right."""
    from schedir.cli.flags.sources import compile_graph, read_program
    from schedir.cli.screen.facts_text import print_facts
    from schedir.cli.screen.progress import Underway
    from schedir.ir.checks.rendezvous import check_rendezvous

    with Underway(f"verifies {schedule}"):
        graph = compile_graph(read_program(schedule, shape, options), lowering)
        if proofs.sends == "rendezvous":
            check_rendezvous(graph)
    print_facts(graph)
    print("valid: every action once, no action before what it needs, no deadlock, versions as the rule says")
    if proofs.timeout is not None and not proofs.gradients:
        raise ArgumentError("--timeout: without --gradients nothing is trained: leave it out")
    if proofs.gradients:
        if lowering.skips is not None:
            raise ArgumentError("--gradients trains equal layers without skip connections: leave --skips out")
        from schedir.workflows.checking.check_gradients import check_gradients

        with Underway("trains in float64, and compares", logged=True):
            found = check_gradients(graph, timeout=proofs.timeout or TIMEOUT_S)
        print(found.require())
