"""Durations drawn from single measurements, for Monte-Carlo: mini-batch by mini-batch, so that what a moment had in common stays.

A machine has slow moments, which all tasks of a mini-batch meet. Were every task to draw from all samples for itself, such
moments would average out over the tasks, and draws would be far too much alike. So a mini-batch draws from one repeat of the
measurement (a task any sample of its kind and stage that this repeat kept), and mini-batches that follow each other draw from
repeats that follow each other, in blocks: the stationary bootstrap (Politis and Romano 1994, J. Am. Stat. Assoc. 89), in which
the next mini-batch begins a new block, at a repeat drawn anew, with probability 1 / L. Blocks of R^(1/3) of R repeats estimate a
mean's variance best (Hall, Horowitz and Jing 1995, Biometrika 82, up to a constant that depends on the noise): that is L.

    measured   repeats 0 1 2 3 4 …     drawn   mini-batches   0 1 | 2 | 3 4 5 | …
                                               of repeats     3 4 | 1 | 4 0 1 | …      (behind the last comes the first again)

Samples whose repeats are not known are drawn without regard to each other.
"""

from __future__ import annotations

import numpy as np

from schedir.costs.stage_seconds import durations, pair_parts
from schedir.costs.table.resolved import Resolved
from schedir.ir.action import Kind
from schedir.ir.arrays import Floats, Ints
from schedir.ir.graph import TaskGraph


def sample_durations(graph: TaskGraph, found: Resolved, rng: np.random.Generator, *, samples: int) -> Floats:
    """Return durations, float64 (num_tasks, samples).

    A draw is the task's duration times one of the factors sample/median of its kind, stage and repeat, so that firsts and other
    micro-batch sizes vary alike. The two actions of an overlapped pair that has no samples of its own draw apart.
    """
    count = graph.num_compute_tasks
    num_stages = graph.program.num_stages
    repeat = block_bootstrap(found.samples.num_repeats, (graph.program.num_mini_batches, samples), rng)
    drawn = np.zeros((graph.num_tasks, samples))  # transfers and reductions stay 0: nobody measured them
    key = graph.kind[:count].astype(np.int64) * num_stages + graph.stage[:count]
    drawn[:count] = durations(graph, found.seconds)[:count, None]
    drawn[:count] *= found.samples.draw(key, repeat[graph.mini_batch[:count]], rng)
    if len(graph.pairs):
        _draw_pairs(graph, found, rng, repeat=repeat, drawn=drawn)
    return drawn


def block_bootstrap(num_repeats: int, shape: tuple[int, int], rng: np.random.Generator) -> Ints:
    """Return the repeat that each place of a row draws from, int64 `shape` = (places, samples): places follow each other."""
    places, samples = shape
    if num_repeats == 1:
        return np.zeros(shape, np.int64)
    #   begins       T . T . .       a block begins with probability 1 / L
    #   begun        0 0 2 2 2       the place where one's block began
    #   repeat       3 4 1 2 3       the repeat drawn for the block's beginning, and on from there
    begins = rng.random(shape) < num_repeats ** (-1 / 3)
    begins[0] = True
    place = np.arange(places)[:, None]
    begun = np.maximum.accumulate(np.where(begins, place, 0), axis=0)
    drawn = rng.integers(num_repeats, size=shape)
    found: Ints = (drawn[begun, np.arange(samples)] + place - begun) % num_repeats
    return found


def _draw_pairs(graph: TaskGraph, found: Resolved, rng: np.random.Generator, *, repeat: Ints, drawn: Floats) -> None:
    """Fill in the pairs whose cost is not stated as one; `repeat` is by mini-batch, and each action has its own."""
    parts = pair_parts(graph, found.seconds)
    apart = np.flatnonzero(np.isnan(parts.stated))
    tasks, num_stages = graph.pairs.task[apart], graph.program.num_stages
    forward = np.int64(Kind.FORWARD) * num_stages + graph.stage[tasks]
    backward = graph.pairs.kind[apart].astype(np.int64) * num_stages + graph.pairs.stage[apart]
    # the two halves are of different micro-batches, which may lie in different mini-batches
    of_backward = graph.pairs.micro_batch[apart] // graph.program.num_micro_batches
    drawn[tasks] = parts.forward[apart, None] * found.samples.draw(forward, repeat[graph.mini_batch[tasks]], rng)
    drawn[tasks] += parts.backward[apart, None] * found.samples.draw(backward, repeat[of_backward], rng)
