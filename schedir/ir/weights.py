"""Weight rules: which weights an action reads, as data. The pass `lowering.versions` turns a rule into numbers.

| rule           | F reads                                     | the backward (R, B, I and W) reads              |
|----------------|---------------------------------------------|-------------------------------------------------|
| latest         | current (a flush: no update lies between)   | current                                         |
| current        | current                                     | current (F may differ: the drift is reported)   |
| stash          | current at its own F                        | what its F read                                 |
| vertical-sync  | what stage 0 read at the mini-batch's first | same                                            |
| double-buffer  | max(j // m - 1, 0)                          | same                                            |
| predict        | the bellwether's prediction for forwards    | its prediction for backwards, or F's stash      |

A backward reads one set of weights from its first task, R or else B or I, to its last, B or W: the gradient of a micro-batch is
taken at one point. Current of a backward is what stands where it begins. An update may lie between its tasks; the set before it is
then kept until the last of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from schedir.errors import ArgumentError
from schedir.ir.horizons import check_policy


class Rule(StrEnum):
    """Names of the weight rules, as files and JSON spell them."""

    LATEST = "latest"
    CURRENT = "current"
    STASH = "stash"
    VERTICAL_SYNC = "vertical-sync"
    DOUBLE_BUFFER = "double-buffer"
    PREDICT = "predict"


class BackwardWeights(StrEnum):
    """What backwards read under the rule predict."""

    PREDICT = "predict"
    STASH = "stash"


@dataclass(frozen=True, slots=True)
class WeightRule:
    """A weight rule with its options; raises ArgumentError for options that the rule does not have."""

    rule: Rule = Rule.LATEST
    horizon: str | int | None = None
    """Under predict: the horizon policy (see `ir.horizons.POLICIES`) or a constant number of updates."""
    backward: BackwardWeights = BackwardWeights.PREDICT
    """Under predict: what backwards read."""

    def __post_init__(self) -> None:
        if self.horizon is not None:
            check_policy(self.horizon)
        options = {"horizon": self.horizon, "backward_weights": self.backward if self.backward is BackwardWeights.STASH else None}
        for name, value in options.items():
            if value is not None and self.rule is not Rule.PREDICT:
                raise ArgumentError(f"{name} {value} needs weights 'predict', but weights are {self.rule.value!r}")

    @property
    def synchronous(self) -> bool:
        """True if the pipeline flushes: every read is of the version that sequential training would read."""
        return self.rule is Rule.LATEST

    def __str__(self) -> str:
        return self.rule.value
