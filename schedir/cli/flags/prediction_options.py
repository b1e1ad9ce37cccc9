"""Groups of flags that say what a program costs and how it is predicted; their names are the option names of the Python API."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from schedir.cli.flags.flags import flag, switch
from schedir.cli.flags.values import count, counts, memory, one_of, path, random_seed, sizes, spread, text, times

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
"""Seconds of one unit of time on the command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostOptions:
    """Costs: one value, or one per stage, comma-separated."""

    forward: tuple[float, ...] | None = flag("--forward", times, "TIME", "Forward of one micro-batch; 1 if nothing is given.")
    backward: tuple[float, ...] | None = flag("--backward", times, "TIME", "Full backward; 2 if nothing is given.")
    input_grad: tuple[float, ...] | None = flag("--input-grad", times, "TIME", "Input-gradient half of a split backward.")
    weight_grad: tuple[float, ...] | None = flag("--weight-grad", times, "TIME", "Weight-gradient half of a split backward.")
    overlapped: tuple[float, ...] | None = flag(
        "--overlapped", times, "TIME", "A forward and a backward run as one; their sum if not given."
    )
    recompute_time: tuple[float, ...] | None = flag("--recompute-time", times, "TIME", "Recomputation; as forward if not given.")
    update: tuple[float, ...] | None = flag("--update", times, "TIME", "Optimizer step of a stage; 0 if not given.")
    predict: tuple[float, ...] | None = flag("--predict", times, "TIME", "Weight prediction of a stage; 0 if not given.")
    transfer: tuple[float, ...] | None = flag(
        "--transfer", times, "TIME", "From one device to another; transfers overlap. 0 if not given."
    )
    transfer_bytes: tuple[float, ...] | None = flag(
        "--transfer-bytes", sizes, "BYTES", "What one transfer carries; --cluster gives the time that it takes."
    )
    skip_bytes: tuple[float, ...] | None = flag(
        "--skip-bytes", sizes, "BYTES", "What a skip connection carries (--skips); as --transfer-bytes if not given."
    )
    unit: str | None = flag("--unit", one_of(*UNITS), "s|ms|us", "Unit of these times; s if not given.")
    costs: Path | None = flag("--costs", path, "FILE", "Costs file (TOML or JSON), hand-written or measured by `schedir profile`.")
    layers_per_stage: tuple[int, ...] | None = flag(
        "--layers-per-stage", counts, "N,N,…", "Cuts costs per layer into stages: consecutive layers of each stage."
    )
    cluster: Path | None = flag("--cluster", path, "FILE", "Cluster file (TOML): devices with their memory and speed, links.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeOptions:
    """Sizes."""

    micro_batch_size: int | None = flag(
        "--micro-batch-size", count, "N", "Samples of one micro-batch; those of the costs file if not given."
    )
    mini_batch_size: int | None = flag(
        "--mini-batch-size", count, "N", "Samples of one update, over all micro-batches, in place of --micro-batch-size."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Simulator."""

    engine: str | None = flag(
        "--engine",
        one_of("auto", "in-order", "simpy"),
        "auto|in-order|simpy",
        "in-order: an array pass; simpy: event by event; auto, if not given: in-order wherever it is exact, else simpy.",
    )
    seed: int | None = flag(
        "--seed",
        random_seed,
        "N",
        "Draw durations from the costs' measured samples, or with --jitter; 0 if not given where they are drawn.",
    )
    jitter: float | None = flag(
        "--jitter",
        spread,
        "SIGMA",
        "Draw durations, in place of the samples: standard deviation of their logarithm (0.05: some 5 %).",
    )
    sends: str | None = flag(
        "--sends",
        text,
        "buffered|rendezvous",
        "rendezvous: a device that sends waits for its receiver; buffered, if not given: it goes on.",
    )
    cores: int | None = flag(
        "--cores", count, "N", "All devices are threads on one host with N cores, which they share; a core each if not given."
    )
    memory_limit: float | None = flag(
        "--memory-limit", memory, "BYTES", "Memory of a device (`80 GB`), to say whether it fits; the cluster's if not given."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictOptions:
    """Verdict."""

    samples: int | None = flag("--samples", count, "N", "Monte-Carlo: percentiles over so many draws of all durations.")
    require_fit: bool = switch("--require-fit", "Exit with 2 where memory does not fit, or is not known to.")
