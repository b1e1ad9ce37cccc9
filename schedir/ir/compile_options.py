"""How a program is lowered, beside what the program says itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How a program was lowered; together with the program's text this makes the same graph again."""

    recompute: tuple[str, ...] = ("never",)
    """never, except-last, always or selective: one for all stages, or one per stage; of a graph always one per stage."""
    recompute_start: str = "early"
    """`early` (needs the stage's own forward only) or `on-gradient`."""
    skips: tuple[tuple[int, int], ...] = ()
    """Skip connections over cuts: (source stage, target stage) pairs beside the chain."""
    ties: tuple[tuple[int, ...], ...] = ()
    """Stages that hold the same weights, increasing; a stage stands in one tie at most."""
    common_update: bool = False
    """No stage updates before all stages have their gradients: a norm over the model, or a common skip, decides."""

    @property
    def recompute_text(self) -> str:
        """The recompute mode in one word, or per stage, comma-separated."""
        # one word where it can be, so that a report does not repeat it for sixty-four stages
        modes = set(self.recompute)
        return modes.pop() if len(modes) == 1 else ",".join(self.recompute)


def written_modes(recompute: str | Sequence[str]) -> tuple[str, ...]:
    """Return recompute modes as they are written: a word, several with commas between them, or a sequence of words."""
    if isinstance(recompute, str):
        return tuple(word.strip() for word in recompute.split(","))
    return tuple(recompute)
