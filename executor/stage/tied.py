"""What one copy of a stage does about weights that other stages hold, too: what it gives to their sum, and what it takes of it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from executor.stage.gradients import Sums


@dataclass(frozen=True, slots=True)
class TiedPart:
    """A stage's part in a tie, on one device."""

    numbers: tuple[int, ...] = ()
    """By parameter of the tie: its number among the stage's trainable parameters, -1 where the stage does not hold it."""
    owned_below: frozenset[int] = frozenset()
    """Numbers of parameters that a lower stage owns, which counts their gradients in a norm."""
    updated_below: frozenset[int] = frozenset()
    """Numbers of parameters that lie in the memory of a lower stage on the device, which updates them."""

    def share(self, gradients: Sums) -> list[Tensor | None]:
        """Return what the stage gives to the sum, by parameter of the tie."""
        return [None if number < 0 else gradients[number] for number in self.numbers]

    def merged(self, gradients: Sums, total: Sums) -> list[Tensor | None]:
        """Return the stage's gradients with the sums over all holders in place of its own."""
        found = list(gradients)
        for number, summed in zip(self.numbers, total, strict=True):
            if number >= 0:
                found[number] = summed
        return found


def without(gradients: Sums, numbers: frozenset[int]) -> Sums:
    """Return gradients with None for some parameters."""
    return [None if number in numbers else gradient for number, gradient in enumerate(gradients)] if numbers else gradients
