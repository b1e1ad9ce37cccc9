"""What the user's own modules show while they are trained: their newest weights, whatever devices compute with meanwhile.

    device's thread     module.weight ──▶ the version that its task names (`executor.stage.weights`), which may be old or predicted
    caller's thread     module.weight ──▶ steps on their way are waited for ──▶ the module's own parameter, with its newest weights

Versions stand in the places of a module's parameters for as long as a device computes, and the memory of one that nobody reads any
more is let go of. So between two calls of the trainer, `model.state_dict()`, `model.parameters()` and `model(x)` would find any of
them, or nothing. A module's parameters are kept in a dictionary, which a training replaces by one that knows who asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from threading import get_ident
from typing import Any

from torch import nn

Show = Callable[[], None]


class CallerWindow:
    """Between a training and the thread that calls its trainer."""

    def __init__(self, stages: Iterable[nn.Module], show: Callable[[], Show | None]) -> None:
        """Stand in front of the parameters of all modules.

        `show` refers weakly to what waits for the devices and puts newest weights into all places: modules outlive trainers.
        """
        self.caller: int | None = None
        """Thread that finds newest weights; None while it is inside the trainer, and once it has seen them."""
        self._show = show
        self._watched = [
            (module, _Watched(module._parameters, self))
            for module in {module: None for stage in stages for module in stage.modules()}
            if type(vars(module).get("_parameters")) is dict  # a module of TorchScript keeps them elsewhere
        ]
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

    def remove(self) -> None:
        """Give modules plain dictionaries back; they have their own parameters already."""
        self.shut()
        for module, watched in self._watched:
            if vars(module).get("_parameters") is watched:
                vars(module)["_parameters"] = dict(watched)
        self._watched = []


class _Watched(dict[str, Any]):
    """The parameters of one module; the caller's thread looks through the window before it reads them."""

    __slots__ = ("_window",)

    def __init__(self, parameters: dict[str, Any], window: CallerWindow) -> None:
        super().__init__(parameters)
        self._window = window

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
