"""A model in stages that remembers what its parameters are called in the whole."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

from executor.boundary import Arguments, Value
from executor.model.skips import Skip, check_skips
from executor.randomness import never_draws
from schedir.errors import ArgumentError


@never_draws
class LayerRow(nn.Sequential):
    """Layers of a list as one stage, each called as if it were a stage: tuples and dicts are spread over its arguments."""

    def forward(self, value: Value) -> Value:
        """Run one layer after the other."""
        for layer in self:
            value = layer(value) if isinstance(value, Tensor) else Arguments.of(layer).call(layer, value)
        return value


class Stages(tuple[nn.Module, ...]):
    """Stages in order; stage k's output is stage k + 1's input."""

    prefixes: tuple[str, ...]
    """By stage: what stands before its keys in the state_dict of the model that was cut."""
    skips: tuple[Skip, ...]
    """Outputs that go over skip connections, in the order of their ends."""

    def __new__(cls, stages: Iterable[nn.Module], prefixes: Iterable[str] | None = None, *, skips: Iterable[Skip] = ()) -> Stages:
        """Take stages and what stands before their keys in the whole model, by default the number of the stage.

        Raises ArgumentError for what are no stages, or skip connections that do not fit them.
        """
        made = super().__new__(cls, stages)
        given: tuple[object, ...] = made
        wrong = [type(stage).__name__ for stage in given if not isinstance(stage, nn.Module)]
        if not made or wrong:
            raise ArgumentError(f"stages hold {wrong[0] if wrong else 'nothing'}: give at least one stage, each an nn.Module")
        made.prefixes = tuple(f"{number}." for number in range(len(made))) if prefixes is None else tuple(prefixes)
        assert len(made.prefixes) == len(made)
        made.skips = check_skips(skips, len(made))
        return made

    @classmethod
    def of_whole(cls, stages: Iterable[nn.Module], *, skips: Iterable[Skip] = ()) -> Stages:
        """Take stages whose keys are those of the whole model already."""
        found = tuple(stages)
        return cls(found, [""] * len(found), skips=skips)
