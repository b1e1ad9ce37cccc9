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


ALL = names("stash", "vertical", "current", "predict", "predict+stash", "2bw")
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


def schedule_of(name: str) -> tuple[str, dict[str, Any]]:
    """Return the schedule of the table that a case is of, and its options."""
    found, rule = case(name), weight_rule(name)
    if rule.rule is Rule.DOUBLE_BUFFER:
        return "pipedream-2bw", {}
    if rule.rule is not Rule.PREDICT:
        replicas = {"replicas": tuple(found["replicas"])} if found["replicas"] else {}
        return "pipedream", {"weights": rule.rule.value} | replicas
    for schedule in ("spectrain", "pipeoptim"):
        if schedule in name:
            stash = {"backward_weights": "stash"} if rule.backward is BackwardWeights.STASH else {}
            return schedule, {"horizon": rule.horizon} | stash
    return "xpipe", {"horizon": rule.horizon, "backward_weights": rule.backward.value}


def program_of_schedule(name: str) -> Program:
    """Return the case as its schedule builds it."""
    found, (schedule, options) = case(name), schedule_of(name)
    return build_program(
        schedule,
        num_devices=sum(found["replicas"] or [1] * found["p"]),
        num_micro_batches=found["T"],
        num_mini_batches=found["micro_batches"] // found["T"],
        **options,
    )


def recompute(name: str) -> str:
    return "always" if case(name)["recompute"] else "never"
