"""What schedulers keep once for each parameter group, where the groups stand on other stages than when it was saved.

    saved   stage 0: groups A, B  max_lrs [a, b]      stage 1: group C  max_lrs [c]
    here    stage 0: groups A, C  max_lrs [a, c]

No class says which of its lists have a value per group: they are those that have as many values as groups, on every stage that was
saved and on the one that is to have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from executor.checkpoint.training_state import TrainingState

Home = tuple[int, int]
"""Stage that a group was on, and its number there."""

_NOT_OF_GROUPS = frozenset({"_milestones", "milestones", "_schedule_phases", "_schedulers"})
"""Lists of torch's schedulers that may have as many values as there are groups, by chance."""
_RATES = ("base_lrs", "_last_lr")
"""Lists that stand in the optimizers' groups too, and go with them."""


def group_homes(state: TrainingState) -> dict[str, Home]:
    """Return where the group of every parameter was; empty where schedulers do not tell how many groups their stages had."""
    schedulers = enumerate(state.schedulers)
    homes = [(stage, number) for stage, saved in schedulers if saved is not None for number in range(_num_groups(saved))]
    if len(homes) != len(state.groups):
        return {}
    return {key: home for home, group in zip(homes, state.groups, strict=True) for key in group.parameters}


def with_group_lists(
    saved: Mapping[int, Mapping[str, Any]],
    place: int,
    *,
    own: Mapping[str, Any],
    homes: Sequence[Home | None] | None,
    num_groups: int,
) -> dict[str, Any]:
    """Return the state saved for the stage `place`, its lists by the groups that a scheduler with the state `own` has.

    `saved` has the states of all stages that had one, `homes` the place of each group here: None for one without parameters, and
    None as a whole where nobody knows. Raises ValueError for a list that cannot be moved.
    """
    found = dict(saved[place])
    for name, values in saved[place].items():
        if not _may_be_per_group(name, saved.values(), own=own, num_groups=num_groups):
            continue
        if homes is None:
            if len(values) != num_groups:
                raise ValueError(f"{name} has a value for each parameter group, and the groups are others here")
        elif all(len(state[name]) == _num_groups(state) for state in saved.values()):
            # a group without parameters has no home, and nothing that its value could change
            found[name] = [
                own[name][number] if home is None else saved[home[0]][name][home[1]] for number, home in enumerate(homes)
            ]
    inner = found.get("_schedulers")
    if isinstance(inner, list) and all(_has_inner(state, len(inner)) for state in (*saved.values(), own)):
        found["_schedulers"] = [
            with_group_lists(
                {stage: state["_schedulers"][number] for stage, state in saved.items()},
                place,
                own=own["_schedulers"][number],
                homes=homes,
                num_groups=num_groups,
            )
            for number in range(len(inner))
        ]
    return found


def _has_inner(state: Mapping[str, Any], count: int) -> bool:
    """Say whether a scheduler is made of so many others, the states of all of them known."""
    inner = state.get("_schedulers")
    return isinstance(inner, list) and len(inner) == count and None not in inner


def _may_be_per_group(name: str, saved: Iterable[Mapping[str, Any]], *, own: Mapping[str, Any], num_groups: int) -> bool:
    """Say whether all have a list of that name, of one value per group here, and not the same one everywhere."""
    lists = [state.get(name) for state in (*saved, own)]
    if name in _NOT_OF_GROUPS or name in _RATES or not all(isinstance(values, list | tuple) for values in lists):
        return False
    # what is the same everywhere, here too, is right as it is, whatever it is
    return len(own[name]) == num_groups and any(list(values or ()) != list(own[name]) for values in lists)


def _num_groups(state: Mapping[str, Any]) -> int:
    """Return how many groups the optimizer of a scheduler had; 0 if its state does not tell."""
    for name in _RATES:
        if isinstance(state.get(name), list):
            return len(state[name])
    return max((_num_groups(inner) for inner in state.get("_schedulers") or () if inner is not None), default=0)
