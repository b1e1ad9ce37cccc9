"""Errors of the user's code: exit code 2 and one line with the stage, the micro-batch, the error, and the user's own line."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from schedir.cli.blame import users_error
from schedir.cli.run import main
from tests.cli.command import Command
from tests.repository import ROOT

RECIPE = '''
import sys
import threading
import time

import torch
from torch import nn
from executor import Recipe


class Stage(nn.Module):
    """Works for five micro-batches in every thread but the first."""

    def __init__(self, act):
        super().__init__()
        self.layer, self.act, self.calls = nn.Linear(4, 4), act, 0

    def forward(self, x):
        self.calls += threading.current_thread() is not threading.main_thread()
        if self.calls > 5:
            self.act()
        return self.layer(x)


def lose():
    return {}["lost"]


def leave():
    sys.exit(3)


def decompose():
    torch.linalg.cholesky(-torch.eye(3))


def rest():
    print("resting", file=sys.stderr, flush=True)
    time.sleep(300)


def mini_batches(seed):
    return [(torch.ones(4, 4), torch.ones(4, 4))] * 200


def descent(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def recipe(act=lambda: None, loss=nn.functional.mse_loss, optimizer=descent, data=mini_batches):
    return Recipe(stages=[nn.Linear(4, 4), Stage(act)], loss=loss, optimizer=optimizer, data=data)


def key_error(): return recipe(lose)
def exits(): return recipe(leave)
def library(): return recipe(decompose)
def sleeps(): return recipe(rest)
def interrupts(): return recipe(lambda: (_ for _ in ()).throw(KeyboardInterrupt))
def generator_exit(): return recipe(lambda: (_ for _ in ()).throw(GeneratorExit("gone")))
def bad_loss(): return recipe(loss=lambda output, target: {}["loss"])
def bad_data(): return recipe(data=lambda seed: {}["data"])
def no_optimizer(): return recipe(optimizer=lambda parameters: None)
def bad_optimizer(): return recipe(optimizer=lambda parameters: 1 / 0)
def bad_recipe(): return {}["recipe"]
'''


def line_of(text: str) -> int:
    return 1 + RECIPE[: RECIPE.index(text)].count("\n")


RUNS = [
    (
        "key_error",
        rf"^in 1F5 on device 1 \(stage 1, micro-batch 5\): KeyError: 'lost' \(made\.py:{line_of('return {}')} in lose\): mend",
    ),
    ("exits", rf"^in 1F5 on device 1 \(stage 1, micro-batch 5\): SystemExit: 3 \(made\.py:{line_of('sys.exit')} in leave\)"),
    ("library", rf"in 1F5 on device 1 .*: _LinAlgError: .* \(made\.py:{line_of('torch.linalg')} in decompose\)"),
    ("generator_exit", r"in 1F\d+ on device 1 .*: GeneratorExit: gone \(made\.py:\d+ in <genexpr>\)"),
    ("bad_loss", rf"in the loss, first micro-batch: KeyError: 'loss' \(made\.py:{line_of('def bad_loss')} in <lambda>\)"),
    ("bad_data", rf"^KeyError: 'data' \(made\.py:{line_of('def bad_data')} in <lambda>\)"),
    ("no_optimizer", r"^optimizer returns NoneType: give a function that returns a torch\.optim\.Optimizer"),
    ("bad_optimizer", r"^ZeroDivisionError: division by zero \(made\.py:\d+ in <lambda>\)"),
    ("bad_recipe", rf"^KeyError: 'recipe' \(made\.py:{line_of('def bad_recipe')} in bad_recipe\)"),
]


@pytest.fixture
def train(command: Command, tmp_path: Path) -> list[str]:
    """Return the words of a short training; the name of a recipe's function goes behind them."""
    assert command is not None
    (tmp_path / "made.py").write_text(RECIPE)
    return ["compare", "gpipe", "--devices", "2", "--micro-batches", "2", "--mini-batches", "3", "--model"]


@pytest.mark.parametrize("run", RUNS, ids=[name for name, _ in RUNS])
def test_an_error_of_the_users_code_names_their_line(command: Command, train: list[str], run: tuple[str, str]) -> None:
    name, message = run
    error = command.fail(*train, f"made.py:{name}")

    assert re.search(message, error), error
    assert "a fault of schedir" not in error


def test_an_interrupt_in_a_stage_is_an_interruption(command: Command, train: list[str]) -> None:
    result = command(*train, "made.py:interrupts")

    assert (result.code, result.err) == (1, "error: interrupted\n")


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_while_a_stage_rests(train: list[str], tmp_path: Path, sent: signal.Signals) -> None:
    """The stage would rest for 300 s; the command has 240, as a bound only."""
    words = [sys.executable, "-m", "schedir", *train, "made.py:sleeps"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as run:
        assert run.stderr is not None
        assert run.stderr.readline() == "resting\n"
        run.send_signal(sent)
        _, said = run.communicate(timeout=240)

        assert (run.returncode, said) == (1, "error: interrupted\n")


def caught(call: object) -> BaseException:
    assert callable(call)
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - whatever it is
        return error
    raise AssertionError("nothing was raised")


def test_an_error_in_our_own_code_is_not_the_users() -> None:
    error = caught(lambda: exec(compile("1 / 0", "run.py", "exec"), {"__name__": "executor.run"}))

    assert users_error(error) is None


def test_a_library_that_ours_calls_is_the_users_only_within_a_task() -> None:
    """torch is told what to do by a stage, and by us."""
    code = compile("torch.linalg.cholesky(-torch.eye(2))", "stage.py", "exec")
    error = caught(lambda: exec(code, {"__name__": "executor.stage.stage", "torch": torch}))
    assert users_error(error) is None

    module = nn.Linear(2, 2)
    error = caught(lambda: exec("module('text')", {"__name__": "executor.stage.stage", "module": module}))
    assert users_error(error) is None
    error.add_note("in 0F0 on device 0")
    assert str(users_error(error)).startswith("in 0F0 on device 0: TypeError: ")


@pytest.mark.parametrize("kind", [RuntimeError, KeyError])
def test_an_error_in_a_process_that_loads_data_is_the_users(kind: type[Exception]) -> None:
    """As torch raises it anew: it has the traceback of the other process as text."""
    told = "\n".join(
        [
            "Caught RuntimeError in DataLoader worker process 1.",
            "Original Traceback (most recent call last):",
            f'  File "{torch.__file__}", line 5, in fetch',
            "    data = next(self.dataset_iter)",
            "           ^^^^",
            f'  File "{Path.cwd() / "data.py"}", line 15, in __iter__',
            '    raise RuntimeError("two\\nlines")',
            "RuntimeError: two",
            "lines",
            "",
        ]
    )
    assert users_error(kind(KeyErrorMessage(told))) == (
        "DataLoader worker process 1: RuntimeError: two lines (data.py:15 in __iter__): mend what you gave; SCHEDIR_TRACEBACK=1 in "
        "the environment shows the way there"
    )


class KeyErrorMessage(str):
    """A text that KeyError shows as it is: torch has the same."""

    __slots__ = ()

    def __repr__(self) -> str:
        return self


@pytest.mark.parametrize("field", ["data", "validation"])
def test_an_error_in_a_library_that_gives_data_is_the_users(field: str, command: Command) -> None:
    """As where the system has killed a process that loads them: then only torch's own lines are left."""
    Path("library.py").write_text(LIBRARY.replace("FIELD", field))
    error = command.fail("train", "1f1b", "--model", "library.py:recipe", "--mini-batches", 4)
    assert error.startswith(f"in {field}: RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed: mend what you gave")


LIBRARY = """
import torch
from torch import nn
from executor import Recipe

def data(seed):
    return [(torch.ones(4, 4), torch.ones(4, 4))] * 4

class Dying:
    '''Raises without a line of this file: a library's iterator does.'''
    def __init__(self, seed):
        lines = 'def give():\\n yield x, x\\n raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed")'
        names = {"x": torch.ones(4, 4), "__name__": "torch.utils.data.dataloader"}
        exec(compile(lines, "dataloader.py", "exec"), names)
        self.give = names["give"]
    def __iter__(self):
        return self.give()

def recipe():
    return Recipe(
        stages=[nn.Linear(4, 4), nn.Linear(4, 4)],
        loss=nn.functional.mse_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        **{"data": data} | {"FIELD": Dying},
    )
"""


def test_a_refusal_names_the_line_that_caused_it(capsys: pytest.CaptureFixture[str], train: list[str]) -> None:
    recipe = Path("made.py")
    recipe.write_text(RECIPE + "\ndef shapes(): return recipe(lambda: torch.ones(2) + torch.ones(3), optimizer=descent)\n")
    assert main([*train, "made.py:shapes"]) == 2

    assert "The size of tensor a (2) must match" in (error := capsys.readouterr().err)
    assert "in <lambda>)" in error


def test_the_line_that_raised_is_named_once(command: Command) -> None:
    Path("mine.py").write_text("def orders():\n    return [][3]\n")

    said = command.fail("show", "mine.py:orders")

    assert said == "mine.py:orders raised IndexError: list index out of range (mine.py:2 in orders): mend it there"
