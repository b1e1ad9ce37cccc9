"""What help texts and messages name exists: flags, schedules, models."""

import ast
import re
from collections.abc import Iterator

import pytest
import typer.main

from schedir.cli.app import COMMANDS, NAMES, app
from schedir.cli.flags.options import HORIZONS
from schedir.cli.flags.recipes import MODELS
from schedir.cli.run import ALIASES
from schedir.ir.horizons import POLICIES
from schedir.schedules.registry import SCHEDULES
from tests.repository import PACKAGES, ROOT, python_files, relative

GROUP = typer.main.get_command(app)
FLAGS = {
    name: {flag for parameter in command.params for flag in parameter.opts if flag.startswith("--")} | {"--help"}
    for name, command in GROUP.commands.items()  # type: ignore[attr-defined]
}
ALL_FLAGS = {"--version", *ALIASES}.union(*FLAGS.values())
NAMED = re.compile(r"(?:(?:schedir )?\b(\w+) )?(--[a-z][a-z-]*)")
"""A flag, with the word before it: `simulate --trace`."""

WITH_COSTS = ("simulate", "compare", "plot")
REACHED_BY = {
    "schedir/costs/": WITH_COSTS,
    "simulator/": WITH_COSTS,
    "schedir/timeline/": WITH_COSTS,
    "schedir/workflows/comparing/compare_training.py": ("compare",),
    "schedir/workflows/checking/check_gradients.py": ("check",),
    "schedir/cli/flags/costs.py": WITH_COSTS,
    "schedir/cli/flags/prediction.py": ("simulate", "compare"),
    **{
        f"schedir/cli/{name}": (name.removesuffix(".py"),)
        for name in ("check.py", "convert.py", "plot.py", "profile.py", "show.py", "train.py")
    },
    "schedir/cli/compare": ("compare",),
    "schedir/cli/simulate": ("simulate",),
}
"""The commands that print what stands in a module: each of them must have the flags that it names."""


def missing(text: str, commands: tuple[str, ...]) -> list[str]:
    """Return the flags that a text names and that the command it names, or else one of `commands`, does not have."""
    found = []
    for match in NAMED.finditer(text):
        word, flag = match.groups()
        if word == "torchrun":
            continue
        typed = re.findall(r"schedir (\w+)", text[: match.start()])
        asked = (word,) if word in FLAGS else (typed[-1],) if typed else commands
        lacking = [name for name in asked if flag not in FLAGS[name]] if asked else [flag] * (flag not in ALL_FLAGS)
        found += [f"{name} has no {flag}" for name in lacking]
    return found


def texts_of_help(name: str) -> Iterator[str]:
    command = GROUP.commands[name]  # type: ignore[attr-defined]
    yield command.help
    for parameter in command.params:
        yield parameter.help or ""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_that_a_help_text_names_exists(name: str) -> None:
    assert [lack for text in texts_of_help(name) for lack in missing(text, (name,))] == []


def test_the_help_of_all_commands_names_flags_of_some() -> None:
    assert missing(str(GROUP.help), ()) == []


def messages(tree: ast.Module) -> Iterator[str]:
    """Yield the texts of a module, each f-string as one with `…` for its values, without docstrings."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for part in node.values)
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped and " " in node.value:
            yield node.value  # a single word is a piece of a command line, not a message


def test_every_flag_that_a_message_names_exists_in_the_commands_that_print_it() -> None:
    wrong = []
    for path in python_files(*PACKAGES):
        place = relative(path)
        commands = next((names for start, names in REACHED_BY.items() if place.startswith(start)), ())
        for text in messages(ast.parse(path.read_text(encoding="utf-8"))):
            wrong += [f"{place}: {text[:60]!r}: {lack}" for lack in missing(text, commands)]

    assert wrong == []


@pytest.mark.parametrize(
    ("text", "commands", "lacks"),
    [
        ("give --model or --costs", ("simulate",), ["simulate has no --model"]),
        ("files that plot --trace wrote", ("simulate",), ["plot has no --trace"]),
        ("use --nonsense", (), ["--nonsense has no --nonsense"]),
        ("schedir simulate 1f1b --trace", ("plot",), []),
    ],
)
def test_a_flag_that_does_not_exist_is_found(text: str, commands: tuple[str, ...], lacks: list[str]) -> None:
    assert missing(text, commands) == lacks


def test_the_help_lists_all_schedules_and_models() -> None:
    assert tuple(SCHEDULES) == NAMES
    assert ", ".join(NAMES) in str(GROUP.help)
    for name in ("compare", "profile", "train"):
        assert any(", ".join(MODELS) in text for text in texts_of_help(name))


@pytest.mark.parametrize("option", sorted({option for schedule in SCHEDULES.values() for option in schedule.options} - {"costs"}))
def test_the_help_of_a_schedule_s_option_names_the_schedules_that_have_it(option: str) -> None:
    having = [schedule.name for schedule in SCHEDULES.values() if option in schedule.options]
    (text,) = (parameter.help for parameter in GROUP.commands["simulate"].params if parameter.name == option)  # type: ignore[attr-defined]

    assert text.partition(":")[0].split(", ") == having


def test_documentation_of_commands_can_be_typed() -> None:
    """Every `schedir COMMAND --flag …` of README, docs and examples has flags of that command."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.py")]
    lines = [line.strip() for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    typed = [line.split()[1:] for line in lines if line.startswith("schedir ")]
    wrong = [
        f"{words[0]} has no {word}"
        for words in typed
        for word in words
        if words[0] in FLAGS and word.startswith("--") and word.partition("=")[0] not in FLAGS[words[0]]
    ]

    assert len(typed) > 10
    assert wrong == []


WITHOUT = "if not given"
ALONE = {
    *("--help", "--costs", "--cluster", "--layers-per-stage", "--transfer-bytes", "--skips", "--ties", "--option", "--plan"),
    *("--samples", "--trace", "--plot", "--model", "--output", "--mini-batch-size", "--lr", "--batch-norm", "--loss-scaling"),
    *("--input-grad", "--weight-grad", "--title", "--mini-batches", "--epochs", "--jitter", "--iterations"),
}
"""Flags without which there simply is no such thing, or whose place another one takes that the text names."""


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_says_what_holds_where_a_flag_is_not_given(name: str) -> None:
    params = GROUP.commands[name].params  # type: ignore[attr-defined]
    valued = [parameter for parameter in params if parameter.opts[0].startswith("--") and not parameter.is_flag]
    silent = [
        parameter.opts[0]
        for parameter in valued
        if parameter.opts[0] not in ALONE and WITHOUT not in parameter.help and "nothing is given" not in parameter.help
    ]

    assert silent == []


def test_the_help_lists_all_horizon_policies() -> None:
    assert HORIZONS == POLICIES
