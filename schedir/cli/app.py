"""The commands of schedir, in the order in which --help lists them, and which of them answers what."""

from __future__ import annotations

import typer

from schedir.cli.check import check
from schedir.cli.compare.command import compare
from schedir.cli.convert import convert
from schedir.cli.demo import demo
from schedir.cli.plot import plot
from schedir.cli.profile import profile
from schedir.cli.search import search
from schedir.cli.show import show
from schedir.cli.simulate import simulate
from schedir.cli.train.command import train

NAMES = (
    *("gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1", "zb-h2", "interleaved-zb", "zb-v", "v-half"),
    *("dualpipev", "dualpipe", "chimera", "hanayo"),
    *("pipedream", "pipedream-2bw", "xpipe", "spectrain", "pipeoptim"),
)
"""The names of all schedules: written down here so that --help loads no schedule."""

_HELP = (
    "Pipeline-parallel training schedules: what would happen, and what did happen?\n\n"
    "Which command answers what: simulate = one schedule in every detail; compare = these schedules side by side on the same "
    "work, with --model predicted and trained; search = a new order for your costs and memory; show and check = a schedule's "
    "grid, and the proof that it is right; profile = what my model costs; train = train it for real, with checkpoints; "
    "demo = all of it in two minutes.\n\n"
    f"A SCHEDULE is a name, a file (.toml, .csv, .txt) or a function (file.py:function, package.module:function). The names: "
    f"{', '.join(NAMES)}."
)

app = typer.Typer(
    name="schedir",
    help=_HELP,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)

COMMANDS = {
    "show": show,
    "check": check,
    "simulate": simulate,
    "compare": compare,
    "search": search,
    "profile": profile,
    "train": train,
    "plot": plot,
    "convert": convert,
    "demo": demo,
}
"""The commands by name."""

for _name, _command in COMMANDS.items():
    app.command(_name)(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"schedir {version('schedir')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version.", callback=_print_version, is_eager=True),  # noqa: ARG001
) -> None:
    """Print the help where no command is given."""
    if context.invoked_subcommand is None:
        print(context.get_help())
