"""`schedir search`: the best order for given costs, transfers and memory that can be found, and how far it may be from the best."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from schedir.cli.flags.flags import as_command, flag, switch
from schedir.cli.flags.options import NUM_DEVICES, NUM_MICRO_BATCHES, GraphOptions
from schedir.cli.flags.prediction_options import CostOptions
from schedir.cli.flags.values import count, counts, length, memory, one_of, path, random_seed, yes_or_no
from schedir.errors import ArgumentError

if TYPE_CHECKING:
    from schedir.ir.program import Program
    from schedir.search.found import Found
    from schedir.search.problem.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchShape:
    """Shape."""

    devices: int | None = flag("--devices", count, "N", f"Devices of the pipeline (p); {NUM_DEVICES} if not given.")
    micro_batches: int | None = flag(
        "--micro-batches", count, "N", f"Micro-batches per update (m); {NUM_MICRO_BATCHES} if not given."
    )
    mini_batches: int | None = flag(
        "--mini-batches", count, "N", "Mini-batches of the program that --output writes, one like the other; 1 if not given."
    )
    stages_per_device: int | None = flag(
        "--stages-per-device", count, "N", "Stages on every device; 1 if not given, with --placement 2."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """Search."""

    objective: str | None = flag(
        "--objective",
        one_of("makespan", "device-span"),
        "makespan|device-span",
        "What is to be short: the whole, or the longest device from its first start to its last end; makespan if not given.",
    )
    activation_limit: tuple[int, ...] | None = flag(
        "--activation-limit",
        counts,
        "N",
        "Most (stage, micro-batch) pairs alive on a device, or one number per device, comma-separated; no limit if not given.",
    )
    memory_limit: float | None = flag(
        "--memory-limit", memory, "BYTES", "Memory of a device (`80 GB`); needs --costs with bytes. The cluster's if not given."
    )
    placement: str | None = flag(
        "--placement",
        one_of("loop", "v"),
        "loop|v",
        "Where several stages of a device stand: stage s on device s mod p, or down the devices and up again; both if not given.",
    )
    split_backward: bool | None = flag(
        "--split-backward", yes_or_no, "yes|no", "I and W apart, or B whole; if not given, what the costs state and is better."
    )
    time_budget: float | None = flag("--time-budget", length, "SECONDS", "Time of the whole search; 10 if not given.")
    iterations: int | None = flag(
        "--iterations", count, "N", "Orders that local search tries, in place of a time; a seed then always gives the same order."
    )
    prove: bool = switch("--prove", "Let CP-SAT prove that nothing is better, or a bound; needs the extra `search`.")
    workers: int | None = flag("--workers", count, "N", "Threads of CP-SAT; 1 if not given.")
    seed: int | None = flag("--seed", random_seed, "N", "Seed of what is random; 0 if not given.")
    micro_batch_size: int | None = flag(
        "--micro-batch-size", count, "N", "Samples of one micro-batch; those of the costs file if not given."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOutput:
    """Output."""

    output: Path | None = flag(
        "--output/-o",
        path,
        "FILE",
        "Write the order as a program (.toml, .csv, .txt), called by the file's name.",
    )
    json: bool = switch("--json", "Print a schedir.search/1 object instead of text.")
    plot: Path | None = flag("--plot", path, "FILE", "Draw the order's timeline (.pdf, .svg or .png).")


@as_command
def search(*, shape: SearchShape, costs: CostOptions, lowering: GraphOptions, options: SearchOptions, output: SearchOutput) -> None:
    """Find a better order: the shortest one for your costs, transfers and memory, with a bound that says how good it is."""
    from schedir.cli.screen.search_progress import SearchProgress
    from schedir.search.search import search_order

    _check_output(output)
    if options.micro_batch_size is not None and costs.costs is None:
        raise ArgumentError(f"--micro-batch-size {options.micro_batch_size} resizes a file's costs: give --costs, or leave it out")
    if costs.predict is not None:
        raise ArgumentError("--predict: every order of a search flushes, so nothing is predicted: leave it out")
    if shape.mini_batches is not None and output.output is None:
        raise ArgumentError(f"--mini-batches {shape.mini_batches} is for the file: give --output, too, or leave it out")
    problem = _problem(shape, costs, lowering=lowering, options=options)
    if output.output is not None:
        problem = replace(problem, name=output.output.stem)
    with SearchProgress() as progress:
        found = search_order(
            problem,
            seconds=options.time_budget,
            iterations=options.iterations,
            seed=options.seed or 0,
            prove=_threads(options),
            watch=progress.show,
        )
    written = _write(found, shape.mini_batches or 1, output)
    if output.json:
        import json

        from schedir.search.report import search_report

        print(json.dumps(search_report(found, problem, seed=options.seed or 0), indent=1))
        return
    from schedir.cli.screen.search_text import print_found

    print_found(found, problem)
    for place in written:
        print(f"wrote     {place}")


def _threads(options: SearchOptions) -> int:
    """Return the threads of the solver, 0 where it is not asked."""
    if options.workers is not None and not options.prove:
        raise ArgumentError(f"--workers {options.workers} are threads of CP-SAT: give --prove, too, or leave it out")
    return (options.workers or 1) if options.prove else 0


def _problem(shape: SearchShape, costs: CostOptions, *, lowering: GraphOptions, options: SearchOptions) -> Problem:
    from schedir.cli.flags.costs import read_cluster, read_costs
    from schedir.cli.flags.prediction import check_skip_bytes, resized
    from schedir.search.problem.problem import Backward, Limits, Objective, Problem, StagePlacement

    check_skip_bytes(costs, lowering)
    ways = {None: None, True: Backward.SPLIT, False: Backward.WHOLE}
    stages = shape.stages_per_device or (1 if options.placement is None else 2)
    return Problem(
        num_devices=shape.devices or NUM_DEVICES,
        num_micro_batches=shape.micro_batches or NUM_MICRO_BATCHES,
        stages_per_device=stages,
        placement=None if options.placement is None else StagePlacement(options.placement),
        costs=resized(read_costs(costs), options.micro_batch_size),
        cluster=read_cluster(costs),
        limits=Limits(options.activation_limit, options.memory_limit),
        objective=Objective(options.objective or "makespan"),
        backward=ways[options.split_backward],
        lowering=lowering.options(),
    )


def _check_output(output: SearchOutput) -> None:
    """Refuse files that could not be written before the search takes its time."""
    from schedir.interop.program_files import SUFFIXES
    from schedir.workflows.files import check_folder

    for place in (output.output, output.plot):
        if place is not None:
            check_folder(place.parent)
    if output.output is not None and output.output.suffix.lower() not in SUFFIXES:
        raise ArgumentError(f"--output {output.output} does not say the form of a program: end its name with {', '.join(SUFFIXES)}")
    if output.plot is not None:
        from plots import picture_format

        picture_format(output.plot)


def _write(found: Found, num_mini_batches: int, output: SearchOutput) -> list[Path]:
    """Write the files that were asked for."""
    written = []
    if output.output is not None:
        program = replace(found.program(num_mini_batches), name=output.output.stem)  # also where it is a registered schedule's
        written.append(_save(program, output.output))
    if output.plot is not None:
        from plots import gantt, save

        written.append(save(gantt(found.best.timeline), output.plot))
    return written


def _save(program: Program, place: Path) -> Path:
    from schedir.compiler import save_program
    from schedir.workflows.files import make_parents

    make_parents(place)
    save_program(program, place)
    return place
