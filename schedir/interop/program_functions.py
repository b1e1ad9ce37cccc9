"""Programs from functions of the user's own: `file.py:function` or `package.module:function`.

The function takes the shape, whole as `shape` or as the counts that it names (num_devices, num_micro_batches,
num_mini_batches, stages_per_device), and options under their names. It returns a Program or one order for each device, as
actions or as text.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from schedir.errors import ArgumentError, FormatError, RefusedError, SchedirError
from schedir.files import refuse_pipe
from schedir.ir.cells import Orders
from schedir.ir.expect import shown
from schedir.ir.header import Header, did_you_mean
from schedir.ir.program import Program
from schedir.ir.shape import Shape, too_large

COUNTS = ("num_devices", "num_micro_batches", "num_mini_batches", "stages_per_device")
"""The counts of a shape; those that a function does not take need only agree with what it returns."""

WEIGHTS = ("weights", "horizon", "backward_weights")
"""The weight rule; a function that returns orders need not take it."""

_DEFAULTS = {"num_mini_batches": 1, "stages_per_device": 1}


def call_program_function(
    spec: str, options: Mapping[str, Any], header: Callable[[str], Header], *, default_counts: Mapping[str, int]
) -> Program:
    """Import and call `file.py:function` or `package.module:function`; raise SchedirError for all that goes wrong in it.

    `header` makes the header, given a name, of orders that the function returns; a Program has its own. `default_counts` are
    counts of the shape for a function that needs them where `options` lack them.
    """
    where, _, name = spec.rpartition(":")
    function = getattr(_import(where, spec), name, None)
    if not callable(function):
        raise ArgumentError(f"{where} has no function {name!r}: give {where}:FUNCTION")
    arguments = _arguments(spec, function, options, default_counts=default_counts)
    with _guarded(spec):
        result = function(**arguments)
    if isinstance(result, Program):
        return result
    own = header(name)
    if {"num_mini_batches", "shape"} & set(arguments):  # it was told, so its orders have them all
        own = replace(own, num_mini_batches=options.get("num_mini_batches"))
    return _from_orders(spec, result, own)


def _import(where: str, spec: str) -> ModuleType:
    if where.endswith(".py"):
        return _import_file(Path(where), spec)
    with _guarded(spec), _importable_from(Path.cwd()):
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as error:
            if error.name and f"{where}.".startswith(f"{error.name}."):
                raise ArgumentError(
                    f"{spec}: there is no module {error.name!r} here: check the name, or give FILE.py:FUNCTION"
                ) from None
            raise


def _import_file(path: Path, spec: str) -> ModuleType:
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
    with _guarded(spec), _importable_from(path.resolve().parent):
        found.loader.exec_module(module)
    return module


@contextmanager
def _importable_from(folder: Path) -> Iterator[None]:
    """Let the user's modules import their neighbours, as if they were run from their folder."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


@contextmanager
def _guarded(spec: str) -> Iterator[None]:
    """Turn what the user's code raises into one line with the place in it."""
    try:
        yield
    except SchedirError:
        raise
    except (Exception, SystemExit) as error:  # sys.exit() in the user's code must not end ours without a word
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = (error.filename, error.lineno) if isinstance(error, SyntaxError) else (last.filename, last.lineno)
        reason = " ".join(str(error).split())
        raise FormatError(f"{spec} raised {type(error).__name__}: {reason} ({place[0]}:{place[1]})") from error


def _arguments(
    spec: str, function: Callable[..., Any], options: Mapping[str, Any], *, default_counts: Mapping[str, int]
) -> dict[str, Any]:
    """Choose from `options` what the function takes; raise ArgumentError for what it lacks or does not know."""
    parameters = inspect.signature(function).parameters
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    arguments = {key: value for key, value in options.items() if key in parameters or takes_any}
    unknown = [key for key in options if key not in (*arguments, *COUNTS, *WEIGHTS)]
    if unknown:
        known = [name for name in parameters if name not in (*COUNTS, "shape")]
        raise ArgumentError(f"{spec}: {did_you_mean(unknown[0], known, 'option')}")
    counts = {**_DEFAULTS, **default_counts, **{key: options[key] for key in COUNTS if key in options}}
    excess = too_large(
        counts.get("num_devices", 1) * counts["stages_per_device"], counts.get("num_micro_batches", 1) * counts["num_mini_batches"]
    )
    if excess is not None:
        raise RefusedError(f"{spec}: {excess}")
    starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [name for name, known in parameters.items() if known.default is known.empty and known.kind not in starred]
    arguments |= {name: _needed(spec, name, counts) for name in required if name not in (*arguments, "shape")}
    if "shape" in parameters:
        arguments["shape"] = Shape(**{name: _needed(spec, name, counts) for name in COUNTS})
    return arguments


def _needed(spec: str, name: str, counts: Mapping[str, int]) -> int:
    if name not in counts:
        raise ArgumentError(f"{spec} needs {name}: give it")
    return counts[name]


def _from_orders(spec: str, result: object, header: Header) -> Program:
    if isinstance(result, str) or not isinstance(result, Sequence) or not result:
        raise FormatError(
            f"{spec} returned {str(result)[:40]!r}: it must return a Program or a list with one order for each device"
        )
    orders = Orders(lambda device, number: f"{spec}: device {device}: action {number + 1}: ")
    for device, order in enumerate(result):
        if not isinstance(order, Iterable):
            raise FormatError(f"{spec}: device {device}: {shown(order)} is no order: give a text or a list of actions")
        orders.add(order.split() if isinstance(order, str) else [str(entry) for entry in order])
    return orders.program(header)
