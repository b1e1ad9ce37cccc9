"""`schedir profile`: measure what the stages or layers of a model cost on this machine."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schedir.cli.flags.flags import as_command, flag, switch, words_of
from schedir.cli.flags.recipes import RECIPE_HELP
from schedir.cli.flags.values import count, natural, one_of, path, random_seed, text
from schedir.cli.flags.workers import WORKERS, WORKERS_HELP, timeout_flag
from schedir.errors import ArgumentError
from schedir.timeline.percent import percent

if TYPE_CHECKING:
    from executor import Recipe
    from schedir.costs.table.table import TableCosts

COSTS = Path("costs.json")
"""Where the costs go if no file is named."""
SUFFIXES = (".json", ".toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Measurement."""

    stages: int | None = flag(
        "--stages", count, "N", "Stages to cut a whole model into, one per device; 2 if not given, as many as compare trains on."
    )
    by: str | None = flag(
        "--by",
        one_of("stage", "layer"),
        "stage|layer",
        "What to measure: whole stages, or layers, which simulate --layers-per-stage cuts anew; stage if not given.",
    )
    micro_batch_size: int | None = flag(
        "--micro-batch-size", count, "N", "Samples of a micro-batch; the data's own mini-batch, in equal parts, if not given."
    )
    micro_batches: int | None = flag(
        "--micro-batches", count, "N", "Micro-batches of a mini-batch while it is measured; 4 if not given."
    )
    rehearse: str | None = flag(
        "--rehearse",
        one_of("1f1b", "pipedream", "xpipe"),
        "SCHEDULE",
        "By which schedule the model trains while it is measured; 1f1b if not given.",
    )
    repeats: int | None = flag("--repeats", count, "N", "Mini-batches that are measured; 30 if not given.")
    warm_up: int | None = flag("--warm-up", natural, "N", "Mini-batches before those; 10 if not given.")
    split_backward: bool = switch("--split-backward", "Measure the halves of backward too.")
    workers: str | None = flag("--workers", one_of(*WORKERS), "KIND", WORKERS_HELP)
    timeout: float | None = timeout_flag()
    seed: int | None = flag("--seed", random_seed, "N", "Seed of the data; 0 if not given.")

    def given(self) -> dict[str, Any]:
        """Return the arguments of executor.profiling.options.ProfileOptions that were given."""
        values = {
            "num_stages": self.stages,
            "by": self.by,
            "micro_batch_size": self.micro_batch_size,
            "num_micro_batches": self.micro_batches,
            "schedule": self.rehearse,
            "repeats": self.repeats,
            "warm_up": self.warm_up,
            "workers": self.workers,
            "timeout": self.timeout,
            "seed": self.seed,
        }
        return {name: value for name, value in values.items() if value is not None} | {"split_backward": self.split_backward}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOption:
    """Model."""

    recipe: str | None = flag("--model", text, "RECIPE", "The same as RECIPE, as compare has it.")

    def choose(self, model: str | None) -> str:
        """Return the model that was named, by its place or by --model; raise ArgumentError for none and for two."""
        named = [name for name in (model, self.recipe) if name is not None]
        if len(named) != 1:
            what = f"got two: {named[0]} and --model {named[1]}" if named else "got none"
            raise ArgumentError(f"profile measures one model, but {what}: give RECIPE or --model RECIPE")
        return named[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOutput:
    """Output."""

    output: Path | None = flag("--output/-o", path, "FILE", f"The costs file (.json or .toml); {COSTS} if not given.")


@as_command
def profile(
    model: Annotated[
        str | None,
        typer.Argument(metavar="RECIPE", help=f"What to measure: {RECIPE_HELP}"),
    ] = None,
    *,
    named: ModelOption,
    measurement: Measurement,
    output: ProfileOutput,
) -> None:
    """Measure the stages or layers of a model, in training as it will run, and write a costs file for simulate and compare."""
    from schedir.costs.files.costs_file import save_costs
    from schedir.workflows.comparing.split_backward import split_backward_lines
    from schedir.workflows.files import check_folder, make_parents

    source = named.choose(model)
    place = output.output or COSTS
    if place.suffix.lower() not in SUFFIXES:
        raise ArgumentError(f"--output {place} is no costs file: end its name with {' or '.join(SUFFIXES)}")
    check_folder(place.parent)
    costs = _measured(source, measurement)
    command = " ".join(["schedir", "profile", source, *words_of(measurement), *words_of(output)])
    costs = replace(costs, source={**costs.source, "command": command})
    make_parents(place)
    save_costs(costs, place)
    print_costs(costs)
    for line in split_backward_lines({costs.granularity.value + "s": costs}):
        print(line)
    doubt = doubts(costs)
    if doubt:
        print(f"warning: {doubt}")
    print(f"wrote {place}: try {next_command(costs, place)}")


def _measured(source: str, measurement: Measurement) -> TableCosts:
    """Measure a recipe, and say which it is and meanwhile what takes so long."""
    from schedir.cli.screen.progress import Steps

    with Steps() as steps:
        steps.status("loading torch")
        from executor.profiling.options import ProfileOptions
        from executor.profiling.profiling import profile as measure
        from schedir.cli.flags.recipes import find_recipe

        recipe = find_recipe(source)
        steps.say(recipe.headline)
        options = ProfileOptions(**{"num_stages": default_stages(recipe)} | measurement.given())
        return measure(recipe, options, hear=steps.stage)


MOST_NOISE = 0.1
"""From this noise floor on a profile is not trusted."""
LAYERS_NEAR_STAGES = (0.8, 1.25)
"""Layers whose times add up to less or more than so many times those of their stages are not trusted."""


def doubts(costs: TableCosts) -> str:
    """Say in one line why predictions from these costs would be far off; empty where nothing says so."""
    noise, ratio = float(costs.source["noise_floor_fraction"]), costs.source.get("layers_over_stages")
    low, high = LAYERS_NEAR_STAGES
    found = []
    if noise > MOST_NOISE:
        found.append(f"the two halves of the measurement are {percent(noise)} apart (more than {percent(MOST_NOISE)})")
    if ratio is not None and not low <= ratio <= high:
        found.append(f"layers take {ratio:.2f} times what their stages take (not {low:g} to {high:g})")
    remedy = "predictions will be as far off: measure again on a quieter machine, with more --repeats or larger micro-batches"
    return f"{' and '.join(found)}; {remedy}" if found else ""


NUM_STAGES = 2
"""Stages that a whole model is cut into where --stages is not given."""


def default_stages(recipe: Recipe) -> int | None:
    """Return how many stages to measure where nobody says: a recipe's own, else `NUM_STAGES` if the model has as many layers."""
    return None if recipe.model is None else min(NUM_STAGES, recipe.most_stages)


def next_command(costs: TableCosts, place: Path) -> str:
    """Return a command that takes the file as it is."""
    cut = costs.layers_per_stage
    words = ["schedir", "simulate", "1f1b", "--devices", str(len(costs.rows if cut is None else cut)), "--costs", str(place)]
    return shlex.join(words if cut is None else [*words, "--layers-per-stage", ",".join(map(str, cut))])


def print_costs(costs: TableCosts) -> None:
    """Print one row per stage or layer: median times and bytes."""
    from schedir.cli.screen.screen import amount, print_table, seconds

    kinds = ("forward", "backward", "input_grad", "weight_grad", "recompute", "update", "predict")
    present = [kind for kind in kinds if any(getattr(row, kind) is not None for row in costs.rows)]
    columns = [costs.granularity.value, *(kind.replace("_", " ") for kind in present), "weights", "activations", "output"]
    rows = [
        [
            row.name or str(number),
            *(seconds(_median(getattr(row, kind))) for kind in present),
            *(amount(getattr(row.bytes, name)) for name in ("weights", "activations", "output")),
        ]
        for number, row in enumerate(costs.rows)
    ]
    print_table(columns, rows)
    print(
        f"micro-batches of {costs.micro_batch_size} samples, noise floor {percent(costs.source['noise_floor_fraction'])}, "
        f"the system took the core away in {percent(costs.source['preempted_fraction'])} of the samples"
    )
    if "left_out" in costs.source:
        print(costs.source["left_out"])
    if "layers_over_stages" in costs.source:
        print(f"the layers' forwards and backwards add up to {costs.source['layers_over_stages']:.2f} times those of their stages")


def _median(time: Any) -> float | None:
    return None if time is None else float(time.median)
