"""What a pipeline takes of its stages, optimizers and schedulers; everything else is refused before it could train wrongly.

Two stages share nothing that one of them changes but parameters (`executor.model.ties`): two threads would change it at once.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from executor.randomness import NEVER_DRAW
from schedir.errors import ArgumentError, RefusedError
from schedir.expect import kind_of

STATELESS = NEVER_DRAW | {nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout}
"""Modules whose forward changes nothing but buffers."""


def check_stages(stages: Sequence[nn.Module], prefixes: Sequence[str]) -> None:
    """Raise RefusedError for stages that cannot be trained apart; `prefixes` stand before their keys in the whole model."""
    _check_made(stages, prefixes)
    _check_shared_memory(stages, prefixes)
    _check_shared_modules(stages, prefixes)
    _check_hooks(stages, prefixes)


def _check_made(stages: Sequence[nn.Module], prefixes: Sequence[str]) -> None:
    """Refuse parameters and buffers that have no values yet, and those that torch never trains."""
    for prefix, stage in zip(prefixes, stages, strict=True):
        for name, tensor in _tensors(stage):
            if is_lazy(tensor):
                raise RefusedError(
                    f"{prefix}{name} has no shape yet, and optimizers are made before the first forward: run the model once on one "
                    "mini-batch, or use layers that are not lazy"
                )
            if tensor.is_inference():
                raise RefusedError(
                    f"{prefix}{name} was made in torch.inference_mode, where nothing can be trained: make the model outside of it"
                )


def _tensors(stage: nn.Module) -> tuple[tuple[str, Tensor], ...]:
    return (*stage.named_parameters(), *stage.named_buffers())


def _check_shared_memory(stages: Sequence[nn.Module], prefixes: Sequence[str]) -> None:
    """Refuse shared memory that some stage changes, of a trainable parameter or a buffer; one and the same parameter is a tie."""
    owners: dict[int, tuple[int, str, bool]] = {}
    seen: set[int] = set()
    for number, stage in enumerate(stages):
        for name, tensor in _tensors(stage):
            if isinstance(tensor, nn.Parameter) and id(tensor) in seen:
                continue
            seen.add(id(tensor))
            changes = tensor.requires_grad or not isinstance(tensor, nn.Parameter)
            address = tensor.untyped_storage().data_ptr()
            if not address:
                continue
            first, first_name, first_changes = owners.setdefault(address, (number, prefixes[number] + name, changes))
            if first != number and (changes or first_changes):
                raise RefusedError(
                    f"stages {first} and {number} share the memory of {first_name} and {prefixes[number] + name}: put both in one "
                    "stage, or give each its own"
                )


def _check_shared_modules(stages: Sequence[nn.Module], prefixes: Sequence[str]) -> None:
    """Refuse a module that two stages hold, unless it surely remembers nothing: two threads would run it at once."""
    owners: dict[int, tuple[int, str]] = {}
    for number, stage in enumerate(stages):
        for name, module in stage.named_modules():
            place = (prefixes[number] + name).rstrip(".")
            first, first_place = owners.setdefault(id(module), (number, place))
            if first != number and type(module) not in STATELESS:
                raise RefusedError(
                    f"stages {first} and {number} share the module {first_place} = {place} ({type(module).__name__}), which may "
                    "remember something: give each its own, say by copy.deepcopy; modules of their own may hold the same parameters"
                )


def _check_hooks(stages: Sequence[nn.Module], prefixes: Sequence[str]) -> None:
    """Refuse hooks on parameters: gradients are taken with respect to versions of them, so nobody would call the hooks."""
    for prefix, stage in zip(prefixes, stages, strict=True):
        for name, parameter in stage.named_parameters():
            if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
                raise RefusedError(
                    f"parameter {prefix}{name} has hooks, which training would not call: remove them, or do their work in the "
                    "optimizer"
                )


def made_optimizer(make: Callable[[list[nn.Parameter]], Optimizer], parameters: list[nn.Parameter]) -> Optimizer:
    """Return the optimizer of a stage's parameters; raise ArgumentError or RefusedError for one that no stage can use."""
    made: object = make(parameters)
    if not isinstance(made, Optimizer):
        raise ArgumentError(f"optimizer returns {type(made).__name__}: give a function that returns a torch.optim.Optimizer")
    own = {id(parameter) for parameter in parameters}
    foreign = next((each for group in made.param_groups for each in group["params"] if id(each) not in own), None)
    if foreign is not None:
        raise ArgumentError(
            f"optimizer returns {kind_of(made)} with a parameter of shape {list(foreign.shape)} that is not the stage's: "
            "make it of the parameters that it is given, anew for every stage"
        )
    if _needs_argument(made.step):
        raise RefusedError(
            f"optimizer {type(made).__name__} runs forward and backward itself, by a closure, which no stage can do alone: use one "
            "that steps from gradients, such as SGD or Adam"
        )
    return made


def made_scheduler(make: Callable[[Optimizer], LRScheduler], optimizer: Optimizer) -> LRScheduler:
    """Return the scheduler of a stage's optimizer; raise ArgumentError or RefusedError for one that no stage can use."""
    made: object = make(optimizer)
    if not isinstance(made, LRScheduler):
        raise ArgumentError(
            f"scheduler returns {type(made).__name__}: give a function that returns a torch.optim.lr_scheduler.LRScheduler"
        )
    if _needs_argument(made.step):
        raise RefusedError(
            f"scheduler {type(made).__name__} needs a metric, which no stage knows when it updates: use one that steps by itself"
        )
    return made


def _needs_argument(step: Callable[..., object]) -> bool:
    parameters = inspect.signature(step).parameters.values()
    return any(
        each.default is each.empty and each.kind in {each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD} for each in parameters
    )


LONGEST_TIMEOUT_S = 1e9
"""Thirty years: waits of the operating system overflow somewhere beyond."""


def check_timeout(timeout: object) -> None:
    """Raise ArgumentError unless it is a positive number of seconds, of at most LONGEST_TIMEOUT_S."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise ArgumentError(f"timeout {timeout!r} is no positive number of seconds: give one, say 600")
    if timeout > LONGEST_TIMEOUT_S:
        raise ArgumentError(f"timeout {timeout!r} s is longer than the {LONGEST_TIMEOUT_S:.0e} s that a wait may take: give less")
