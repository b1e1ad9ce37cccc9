"""The user's own code: a function that they name is loaded, and what their code raises is said with their own line.

Whose line it is is read from the innermost call outwards, libraries left out:

    … ── executor/stage/module.py ── my_recipe.py:12 forward ── torch/nn/functional.py       the user's, at line 12
    … ── executor/stage/module.py ── torch/nn/modules/linear.py                             nobody's: no line to be shown
    … ── my_recipe.py:3 recipe ── executor/plan/plan.py                                          ours
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import isfunction
from itertools import takewhile
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from schedir.errors import ArgumentError, FormatError, SchedirError
from schedir.files import refuse_pipe

OURS = frozenset({"schedir", "simulator", "executor", "plots"})
LIBRARIES = sys.stdlib_module_names | {
    *("numpy", "torch", "simpy", "networkx", "matplotlib", "rich", "typer", "click", "pydantic", "pydantic_core")
}
"""Packages that only do what they are told: the error is that of their caller."""

_MODES = {"__torch_dispatch__", "__torch_function__"}
"""Ours, but called by torch for every operation of the user's: what lies further in belongs to the operation."""
_INSTALLED = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})


def load_function(place: str) -> Callable[..., Any]:
    """Return the function that `path/file.py:function` or `package.module:function` names.

    A file may import its neighbours, a module is looked for in the working directory too. Raises in one line ArgumentError for a
    name that leads nowhere, FormatError for a file that cannot be read and for whatever is raised while it is loaded.
    """
    where, _, name = place.rpartition(":")
    if not where or not name.isidentifier():
        raise ArgumentError(f"{place!r} names no function: give FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION")
    with guarded(place):
        module = _load_file(Path(where)) if where.endswith(".py") else _load_module(where, place)
    function = getattr(module, name, None)
    if not callable(function):
        raise ArgumentError(f"{where} has no function {name!r}: give {where}:FUNCTION{_what_is_there(module, function)}")
    checked: Callable[..., Any] = function
    return checked


def _what_is_there(module: ModuleType, found: object) -> str:
    """Return what a module has under a name that is no function's, or the functions that it has."""
    if found is not None:
        return f", not what is of type {type(found).__name__}"
    own = [name for name, value in vars(module).items() if isfunction(value) and value.__module__ == module.__name__]
    return f" with one of {', '.join(own[:5])}" if own else ""


@contextmanager
def guarded(place: str) -> Iterator[None]:
    """Turn what the user's code at `place` raises into a FormatError of one line, with the line of theirs that raised it."""
    try:
        yield
    except SchedirError:
        raise
    except SystemExit as error:  # it must not end ours without a word
        raise FormatError(f"{place} raised {_in_words(error)}: leave sys.exit out of what is loaded") from error
    except Exception as error:
        remedy = "install or mend it" if isinstance(error, ImportError) else "mend it there"
        raise FormatError(f"{place} raised {_in_words(error)}: {remedy}") from error


def _in_words(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)  # as a text it has its place in it, too
    return f"{type(error).__name__}: {' '.join(text.split())}".rstrip(": ") + users_place(error)


def _load_module(name: str, place: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ArgumentError(f"{name!r} is no module name: give FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION")
    with _importable_from(Path.cwd()):  # a script's path has its own folder there instead
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            # a module that is there may itself miss another one, which is the user's to mend
            if error.name and f"{name}.".startswith(f"{error.name}."):
                raise ArgumentError(
                    f"{place}: there is no module {error.name!r} here: check the name, or give FILE.py:FUNCTION"
                ) from None
            raise


def _load_file(path: Path) -> ModuleType:
    try:
        refuse_pipe(path)
        with path.open("rb"):
            pass
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        raise FormatError(f"{path}: {reason}: give FILE.py:FUNCTION") from None
    found = importlib.util.spec_from_file_location(f"_schedir_{path.stem}", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module  # dataclasses and pickle look modules up there
    try:
        with _importable_from(path.resolve().parent):
            found.loader.exec_module(module)
    except BaseException:
        del sys.modules[found.name]  # half a module is nobody's
        raise
    return module


@contextmanager
def _importable_from(folder: Path) -> Iterator[None]:
    """Let the user's modules import their neighbours, as if they were run from their folder."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def users_place(error: BaseException | None) -> str:
    """Return ` (FILE:LINE in FUNCTION)`, where the user's code raised an error; nothing if it did not.

    One of the user's own files is named rather than one of a package that they installed.
    """
    if isinstance(error, SyntaxError) and error.filename and not error.filename.startswith(_INSTALLED):
        return f" ({_shown(error.filename)}:{error.lineno})"  # nothing of it has run: the parser knows the place
    users = [(frame, line) for frame, line in users_calls(error) if _package(frame) not in LIBRARIES]
    own = [(frame, line) for frame, line in users if not frame.f_code.co_filename.startswith(_INSTALLED)]
    for frame, line in (own or users)[:1]:
        return f" ({_shown(frame.f_code.co_filename)}:{line} in {frame.f_code.co_name})"
    return ""


def users_calls(error: BaseException | None) -> list[tuple[FrameType, int]]:
    """Return the calls inside the innermost of ours, with their lines, the innermost first."""
    if error is None:
        return []
    calls = list(takewhile(lambda call: call[0].f_code.co_name not in _MODES, traceback.walk_tb(error.__traceback__)))
    return list(takewhile(lambda call: _package(call[0]) not in OURS, reversed(calls)))


def users_file(file: str) -> Path | None:
    """Return a file of the user's own as it is shown, None for one that is installed."""
    return None if file.startswith(_INSTALLED) else _shown(file)


def _shown(file: str) -> Path:
    path = Path(file)
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
