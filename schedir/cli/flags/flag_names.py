"""Say what is wrong in the words of the command line: `--forward 1,2,3 has 3 values`, where Python says `forward has 3 values`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

ARGUMENTS = {
    "--devices": "num_devices",
    "--layers-per-stage": "layers_per_stage",
    "--micro-batches": "num_micro_batches",
    "--mini-batches": "num_mini_batches",
    "--recompute-time": "recompute",
    "--stages": "num_stages",
}
"""Names of arguments that are not those of their flags with `_` for `-`."""

_VALUE = r"""(?: '[^']*'| "[^"]*"| [([][^)\]]*[)\]]| [-+]?[0-9.]+(?:e[-+]?[0-9]+)?(?![\w.])|(?= (?:has|is|must) ))"""
"""The value behind an argument's name, as Python writes it, or none before a verb."""


@dataclass(frozen=True, slots=True)
class FlagNames:
    """The flags of one command, with the texts that were given."""

    given: Mapping[str, str | None]
    """Flag -> its text, None where it was not given."""

    def translate(self, message: str) -> str:
        """Return a message with flags for names of arguments; the one that it starts with gets its text as value."""
        for name in sorted({_argument(flag) for flag in self.given}, key=len, reverse=True):
            flag = self._flag_of(name)
            if flag is None:
                continue
            text = self.given[flag]
            if text is not None:
                found = re.match(rf"{name}{_VALUE}(?= )", message)
                message = message if found is None else f"{flag} {text}{message[found.end() :]}"
                message = re.sub(rf"option '{name}'", f"option {flag}", message)
            # the remedy of a limit that was met: what is raised there is an argument, whatever else its name may mean
            message = re.sub(rf"\braise {name}\b(?![\w.=])", f"raise {flag}", message)
            if "_" in name:  # other names are words of the language too
                message = re.sub(rf"(?<!--option )(?<![\w'\"./-]){name}(?![\w'\"./(])", flag, message)
        return message

    def _flag_of(self, name: str) -> str | None:
        """Return the flag that sets an argument; of several the only one that was given, else none."""
        flags = [flag for flag in self.given if _argument(flag) == name]
        given = [flag for flag in flags if self.given[flag] is not None]
        chosen = given if len(flags) > 1 else flags
        return chosen[0] if len(chosen) == 1 else None


def _argument(flag: str) -> str:
    return ARGUMENTS.get(flag, flag.removeprefix("--").replace("-", "_"))
