"""The cases of tests/data/async_scalar.json: what every action of an asynchronous schedule reads, counted by hand-written loops."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from schedir.ir.program import Program
from schedir.ir.weights import BackwardWeights, Rule, WeightRule
from schedir.schedules.registry import build_program
from tests.programs import written


@cache
def stored() -> dict[str, Any]:
    return dict(json.loads((Path(__file__).parent / "data" / "async_scalar.json").read_text(encoding="utf-8")))


def case(name: str) -> dict[str, Any]:
    return dict(stored()["cases"][name])


def names(*rules: str) -> list[str]:
    """Return the names of all cases under one of these rules."""
    return [name for name, found in stored()["cases"].items() if found["rule"] in rules]


CONTINUOUS = names("stash", "vertical", "current", "predict", "predict+stash")
"""Cases whose schedule is pipedream or xpipe."""

ALL = [*CONTINUOUS, *names("2bw")]
"""Cases with an order and reads of each action."""


def weight_rule(name: str) -> WeightRule:
    found = case(name)
    match found["rule"]:
        case "predict":
            return WeightRule(Rule.PREDICT, found["policy"])
        case "predict+stash":
            return WeightRule(Rule.PREDICT, found["policy"], BackwardWeights.STASH)
        case rule:
            return WeightRule(Rule({"vertical": "vertical-sync", "2bw": "double-buffer"}.get(rule, rule)))


def program_of_order(name: str) -> Program:
    """Return the case's own order as a program."""
    found = case(name)
    return written(
        *(" ".join(order) for order in found["order"].values()),
        m=found["T"],
        n=found["micro_batches"] // found["T"],
        stages=found["p"],
        weights=weight_rule(name),
    )


def program_of_schedule(name: str) -> Program:
    """Return the case as the schedule of the table that it is a case of."""
    found, rule = case(name), weight_rule(name)
    options: dict[str, Any] = {"weights": rule.rule.value}
    if rule.rule is Rule.PREDICT:
        options = {"horizon": rule.horizon, "backward_weights": rule.backward.value}
    elif found["replicas"]:
        options["replicas"] = tuple(found["replicas"])
    return build_program(
        "xpipe" if rule.rule is Rule.PREDICT else "pipedream",
        num_devices=sum(found["replicas"] or [1] * found["p"]),
        num_micro_batches=found["T"],
        num_mini_batches=found["micro_batches"] // found["T"],
        **options,
    )


def recompute(name: str) -> str:
    return "always" if case(name)["recompute"] else "never"
