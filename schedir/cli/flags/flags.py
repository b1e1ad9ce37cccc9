"""Flags as fields: a group of options is a frozen dataclass, and a command takes the groups it needs.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class ShapeOptions:
        devices: int | None = flag("--devices", count, "N", "devices of the pipeline")

    @as_command
    def show(source: Annotated[str, Argument(...)], shape: ShapeOptions) -> None: ...

`as_command` spreads the fields of every group over the signature that typer reads, so that one flag is written once
whatever number of commands have it, and collects the parsed values into the groups again. A group may consist of groups, so that
what several commands have in common is written once, too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import Field, dataclass, field, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from schedir.cli.flags.flag_names import FlagNames
from schedir.errors import ArgumentError, RefusedError, RunError

Parser = Callable[[str], Any]
"""Turns the text of a flag into its value; raises ArgumentError with the rule alone (`must be …`)."""


@dataclass(frozen=True, slots=True)
class Flag:
    """How a field is written on the command line."""

    name: str
    """With its dashes; a second, short name may follow a slash: `--output/-o`."""
    parse: Parser | None
    """None for a switch."""
    metavar: str
    help: str
    many: bool = False
    """The flag may stand several times; the field is a tuple."""


def flag(name: str, parse: Parser, metavar: str, help_text: str, *, many: bool = False) -> Any:
    """Declare a field that a flag with a value sets; None, or an empty tuple, where it is not given."""
    return field(default=() if many else None, metadata={"flag": Flag(name, parse, metavar, help_text, many)})


def switch(name: str, help_text: str) -> Any:
    """Declare a field that a flag without a value turns on."""
    return field(default=False, metadata={"flag": Flag(name, None, "", help_text)})


def as_command(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function with the fields of its option groups as parameters of their own, as typer wants them."""
    parameters = list(inspect.signature(function, eval_str=True).parameters.values())
    groups = {parameter.name: parameter.annotation for parameter in parameters if is_dataclass(parameter.annotation)}

    @wraps(function)
    def command(**given: Any) -> None:
        names = FlagNames({name: text for group in groups.values() for name, text in _texts(group, given)})
        built = {name: _collect(group, given) for name, group in groups.items()}
        try:
            function(**given, **built)
        except (ArgumentError, RefusedError, RunError) as error:
            said = names.translate(str(error))
            if said == str(error):
                raise  # as it is, with the notes of whichever process it comes from
            raise type(error)(said) from error

    spread = [entry for parameter in parameters for entry in _spread(parameter)]
    setattr(command, "__signature__", inspect.Signature(spread))  # noqa: B010 - mypy knows no such attribute
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in spread}
    return command


def _spread(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    if not is_dataclass(parameter.annotation):
        yield parameter
        return
    for group in _flat(parameter.annotation):
        title = inspect.getdoc(group) or ""
        for member in fields(group):
            yield inspect.Parameter(
                member.name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=_annotation(member.metadata["flag"], title.rstrip(".")),
                default=False if member.metadata["flag"].parse is None else None,
            )


def _parts(group: Any) -> dict[str, Any]:
    """Return the groups that a group consists of, by its fields; none if these are flags."""
    if all("flag" in member.metadata for member in fields(group)):
        return {}
    hints = get_type_hints(group)
    return {member.name: hints[member.name] for member in fields(group)}


def _flat(group: Any) -> list[Any]:
    """Return the groups of flags that a group consists of, itself if it is one."""
    return [part for each in _parts(group).values() for part in _flat(each)] or [group]


def _annotation(written: Flag, panel: str) -> Any:
    names = written.name.split("/")
    if written.parse is None:
        return Annotated[bool, typer.Option(*names, help=written.help, rich_help_panel=panel)]
    kind: Any = list[str] if written.many else str
    option = typer.Option(*names, help=written.help, rich_help_panel=panel, parser=str, metavar=written.metavar)
    return Annotated[kind | None, option]


def _collect(group: Any, given: dict[str, Any]) -> Any:
    """Take the group's fields out of what typer gives and return the group, parsed."""
    parts = _parts(group)
    if parts:
        return group(**{name: _collect(part, given) for name, part in parts.items()})
    return group(**{member.name: _parsed(member, given.pop(member.name)) for member in fields(group)})


def _texts(group: Any, given: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Yield the long name of every flag of a group that takes a single value, with the text that was given."""
    for member in (member for part in _flat(group) for member in fields(part)):
        written: Flag = member.metadata["flag"]
        if written.parse is not None and not written.many:
            yield written.name.split("/")[0], given[member.name]


def _parsed(member: Field[Any], text: Any) -> Any:
    written: Flag = member.metadata["flag"]
    if written.parse is None or text is None:
        return member.default if text is None else text
    if written.many:
        return tuple(_parse(written, each) for each in text)
    return _parse(written, text)


def refuse_given(group: Any, reason: str, *, but: Collection[str] = ()) -> None:
    """Raise ArgumentError if a flag of the group was given, other than those in `but`."""
    for member in fields(group):
        if member.name not in but and getattr(group, member.name) not in {None, False, ()}:
            raise ArgumentError(f"{member.metadata['flag'].name.split('/')[0]}: {reason}: leave it out")


def refuse_all(groups: Iterable[Any], reason: str) -> None:
    """Raise ArgumentError if any flag of these groups was given."""
    for group in groups:
        parts = _parts(type(group))
        refuse_all((getattr(group, name) for name in parts), reason)
        if not parts:
            refuse_given(group, reason)


def words_of(group: Any) -> list[str]:
    """Return the words of a command line that give a group its values, for notes on how a file was made."""
    words: list[str] = []
    for member in fields(group):
        written, value = member.metadata["flag"], getattr(group, member.name)
        if value is None or value is False or value == ():
            continue
        texts = [] if value is True else [",".join(map(str, value))] if isinstance(value, tuple) else [str(value)]
        words += [written.name.split("/")[0], *texts]
    return words


def _parse(written: Flag, text: str) -> Any:
    assert written.parse is not None
    try:
        return written.parse(text)
    except ArgumentError as error:
        raise ArgumentError(f"{written.name.split('/')[0]} {text or repr(text)} {error}") from None
