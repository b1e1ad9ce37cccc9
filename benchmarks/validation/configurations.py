"""What is predicted and measured: three models under several schedules, numbers of micro-batches and ways to recompute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from executor.recipe.ready_made import character_transformer, conv_net, mlp
from executor.recipe.recipe import Recipe
from schedir.ir.program import Program
from schedir.schedules.registry import SCHEDULES, build_program

DEVICES = 2

MODELS = {
    "mlp": lambda: mlp(num_layers=8, width=512, mini_batch_size=512),
    "convolutions": lambda: conv_net(num_blocks=4, channels=32, size=16, mini_batch_size=64),
    "transformer": lambda: character_transformer(num_blocks=4),
}
"""Each with at least four layers, so that two stages on each of two devices are possible."""

CHOICES = (
    ("gpipe", 4, "never"),
    ("gpipe", 4, "always"),
    ("gpipe", 8, "never"),
    ("1f1b", 4, "never"),
    ("1f1b", 8, "never"),
    ("1f1b", 8, "always"),
    ("interleaved-1f1b", 4, "never"),
    ("zb-h1", 4, "never"),
    ("pipedream", 1, "never"),
    ("xpipe", 4, "never"),
)
"""(schedule, micro-batches, recomputation) of every model."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """One row of the table."""

    model: str
    schedule: str
    num_micro_batches: int
    recompute: str

    @property
    def name(self) -> str:
        """Name of its files."""
        return f"{self.model}-{self.schedule}-m{self.num_micro_batches}-{self.recompute}"

    def recipe(self) -> Recipe:
        """Return the model with its data."""
        return MODELS[self.model]()

    def program(self, num_mini_batches: int) -> Program:
        """Return the program; one without a flush has as many mini-batches more as fill and drain it."""
        extra = 2 * DEVICES if SCHEDULES[self.schedule].continuous else 1
        return build_program(
            self.schedule,
            num_devices=DEVICES,
            num_micro_batches=self.num_micro_batches,
            num_mini_batches=num_mini_batches + extra,
        )


def configurations() -> Iterator[Configuration]:
    """Yield all: model after model."""
    for model in MODELS:
        for choice in CHOICES:
            yield Configuration(model, *choice)
