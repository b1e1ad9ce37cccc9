"""What the user's own modules show while they are trained: their newest weights, whatever devices compute with meanwhile.

    device's thread     module.weight ──▶ the version that its task names (`executor.stage.weights`), which may be old or predicted
    caller's thread     module.weight ──▶ steps on their way are waited for ──▶ the module's own parameter, with its newest weights

Versions stand in the places of a module's parameters for as long as a device computes, and the memory of one that nobody reads any
more is let go of. So between two calls of the trainer, `model.state_dict()`, `model.parameters()` and `model(x)` would find any of
them, or nothing. A module's parameters are kept in a dictionary, which a training replaces by one that knows who asks.

Values may be changed in place there, and training goes on with them. What a training has settled when it began stays as it is:
which parameters stand where, and which of them are trained. A change of that would be lost without a word, so it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch
from torch import nn

from executor.trainer.own_memory import OwnMemory
from schedir.errors import RefusedError

Show = Callable[[], None]
_REMEDY = "save, close this trainer and make a new one, which may load the checkpoint"


@dataclass(frozen=True, slots=True)
class _AtStart:
    """What a training has settled about a parameter."""

    label: str
    parameter: nn.Parameter
    trained: bool
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, label: str, parameter: nn.Parameter) -> _AtStart:
        return cls(label, parameter, parameter.requires_grad, parameter.dtype, parameter.device)

    def check(self) -> None:
        """Raise RefusedError if it is otherwise now."""
        now = self.parameter
        if now.requires_grad != self.trained:
            told, undone = ("frozen", True) if self.trained else ("unfrozen", False)
            raise RefusedError(
                f"{self.label} was {told} after its trainer was made, which would change nothing: "
                f"call requires_grad_({undone}), or {_REMEDY}"
            )
        if now.dtype != self.dtype or now.device != self.device:
            raise RefusedError(
                f"{self.label} is {now.dtype} on {now.device} now, and was {self.dtype} on {self.device} when its trainer was "
                f"made: move it back, or {_REMEDY}"
            )


class CallerWindow:
    """Between a training and the thread that calls its trainer."""

    def __init__(self, stages: Iterable[nn.Module], show: Callable[[], Show | None]) -> None:
        """Stand in front of the parameters of all modules.

        `show` refers weakly to what waits for the devices and puts newest weights into all places: modules outlive trainers.
        """
        self.caller: int | None = None
        """Thread that finds newest weights; None while it is inside the trainer, and once it has seen them."""
        self._show = show
        names = {
            module: f"stage {number}'s {name}.".replace(" .", " ")
            for number, stage in enumerate(stages)
            for name, module in stage.named_modules()
        }
        self._watched = [
            (module, _Watched(module._parameters, self, names[module]))
            for module in names
            if type(vars(module).get("_parameters")) is dict  # a module of TorchScript keeps them elsewhere
        ]
        labelled = [pair for _, watched in self._watched for pair in watched.labelled()]
        self._settled = [_AtStart.of(label, parameter) for label, parameter in labelled]
        self.memory = OwnMemory(labelled)
        self._seen: list[dict[str, Any]] | None = None
        """What stood in the modules when somebody last looked; None if nobody has since it was checked."""
        for module, watched in self._watched:
            vars(module)["_parameters"] = watched

    def open(self) -> None:
        """Let the thread that asks now see newest weights from here on, until `shut`."""
        self.caller = get_ident()

    def shut(self) -> None:
        """Show this thread, too, what stands in the modules: it is inside the trainer."""
        self.caller = None

    def look(self) -> None:
        """Put newest weights into all places, in the caller's thread; they stay there until its next call of the trainer."""
        self.shut()
        show = self._show()
        if show is not None:
            show()
        self.shut()  # for `show` is a call of the trainer
        self._seen = [dict(watched) for _, watched in self._watched]
        self.memory.note()  # whatever is still to be done, nothing computes until the caller is back

    def check_places(self) -> None:
        """Raise RefusedError if other parameters stand in the modules than those that were seen there.

        Whoever puts one there has looked before: nn.Module asks first what the place holds.
        """
        if self._seen is None:
            return
        for (_, watched), seen in zip(self._watched, self._seen, strict=True):
            found = dict(watched)
            other = next((name for name in {**seen, **found} if found.get(name) is not seen.get(name)), None)
            if other is not None:
                raise RefusedError(
                    f"{watched.prefix}{other} was replaced while its trainer was open, which would change nothing: change its "
                    f"values in place (with torch.no_grad(): parameter.copy_(…)), or {_REMEDY}"
                )
        self._seen = None

    def check_settled(self) -> None:
        """Raise RefusedError if a parameter was frozen, unfrozen, or moved since training began."""
        for settled in self._settled:
            settled.check()

    def remove(self) -> None:
        """Give modules plain dictionaries back; they have their own parameters already."""
        self.shut()
        for module, watched in self._watched:
            if vars(module).get("_parameters") is watched:
                vars(module)["_parameters"] = dict(watched)
        self.memory.forget()
        self._watched, self._settled, self._seen = [], [], None


class _Watched(dict[str, Any]):
    """The parameters of one module; the caller's thread looks through the window before it reads them."""

    __slots__ = ("_window", "prefix")

    def __init__(self, parameters: dict[str, Any], window: CallerWindow, prefix: str) -> None:
        super().__init__(parameters)
        self._window, self.prefix = window, prefix

    def labelled(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield every parameter with the words for it."""
        yield from ((self.prefix + name, parameter) for name, parameter in dict(self).items() if parameter is not None)

    def _look(self) -> None:
        if self._window.caller == get_ident():
            self._window.look()

    def __getitem__(self, name: str) -> Any:
        self._look()
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._look()
        return super().get(name, default)

    def __iter__(self) -> Iterator[str]:  # dict(…) and {**…} read past the methods of a class that leaves this one as it is
        self._look()
        return super().__iter__()

    def items(self) -> Any:
        self._look()
        return super().items()

    def values(self) -> Any:
        self._look()
        return super().values()

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        """Pickle, and copy, as a plain dictionary: a copy of a model is nobody's training."""
        return dict, (dict(self),)
