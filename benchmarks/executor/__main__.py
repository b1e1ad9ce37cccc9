"""What the executor adds to training, and how it compares with torch's own pipelining.

    python -m benchmarks.executor [--mini-batches 6] [--repeats 9] [--rounds 6] [--steps 10] [--only overhead|torch] [--write]

`--write` replaces the sections of docs/performance.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from rich.console import Console

from benchmarks.executor import against_torch, overhead
from benchmarks.sections import write_section

Say = Callable[[str], None]


def main() -> None:
    """Print the tables; `--write` puts them into docs/performance.md."""
    options = _options()
    say = partial(Console(stderr=True).print, soft_wrap=True)
    sections: dict[str, str] = {}
    if options.only in {None, "overhead"}:
        sections["Executor"] = _overhead(options, say)
    if options.only in {None, "torch"}:
        sections["Executor against torch.distributed.pipelining"] = _against_torch(options, say)
    for title, body in sections.items():
        print(f"## {title}\n\n{body}\n")
        if options.write:
            write_section(title, body)


def _overhead(options: argparse.Namespace, say: Say) -> str:
    rows = []
    for number, case in enumerate(overhead.CASES, start=1):
        say(f"overhead {number}/{len(overhead.CASES)}: {case.schedule}")
        rows.append(overhead.row(case, overhead.measure(case, options.mini_batches, options.repeats)))
        say(" | ".join(rows[-1]))
    return overhead.body(rows, options.repeats)


def _against_torch(options: argparse.Namespace, say: Say) -> str:
    lines = []
    for number, match in enumerate(against_torch.MATCHES, start=1):
        say(f"against torch {number}/{len(against_torch.MATCHES)}: {match.schedule}, {match.num_devices} devices")
        found = against_torch.rows(match, against_torch.play(match, options.rounds, steps=options.steps))
        lines += found
        for line in found:
            say(" | ".join(line))
    return against_torch.body(lines, options.rounds, options.steps)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.executor", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mini-batches", type=int, default=6, help="of one run")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--rounds", type=int, default=6, help="against torch")
    parser.add_argument("--steps", type=int, default=10, help="of one round")
    parser.add_argument("--only", choices=("overhead", "torch"), help="one of the two sections")
    parser.add_argument("--write", action="store_true", help="replace the sections in docs/performance.md")
    return parser.parse_args()


if __name__ == "__main__":
    main()
