"""What the figures mean, in one line each: printed with the numbers, since papers use the same words differently."""

from __future__ import annotations

DEFINITIONS = {
    "makespan_s": "last end - first start",
    "seconds_per_mini_batch": "makespan / mini-batches, start-up and drain included",
    "samples_per_s": "samples of a mini-batch over all replicas / its seconds (of the steady state where there is one)",
    "bubble_fraction": "idle / whole: 1 - busy of all devices / (devices x makespan); recompute, update and predict are busy",
    "bubble_overhead": "idle / busy of all devices",
    "recompute_share": "recompute / busy of all devices",
    "recompute_overhead_s": "makespan - makespan of the same graph when recomputation takes no time",
    "device_span_s": "largest (last end - first start) of one device, of tasks that take time, as in the zero-bubble papers",
    "steady": "(T_b - T_a) / (b - a), T_n = last end of mini-batch n; a = 0, b = N - 1, without flush p - 1, N - p - 1",
    "start_up": "idle before the device's first task",
    "drain": "idle behind the device's last task",
    "dependency": "idle while another device still computes what the next task needs, and until the task starts",
    "transfer": "idle while what the next task waited for last was queueing for a link or under way",
    "reduce": "idle while gradients of replicas, which the next task waited for last, were being summed",
    "imbalance_s": "busy of the busiest device - own busy (no idle cause)",
    "peak_live_activations": "most (stage, micro-batch) pairs alive at once, from the start of F to the end of B or W",
    "weight_versions": "most distinct parameter sets of a stage, true or predicted, alive at once",
    "staleness": "most updates missing, compared with sequential training",
    "critical_path": "the chain of tasks that ends last, each waiting for the one before it",
}
"""By the key of `simulate --json` (idle causes by their own)."""
