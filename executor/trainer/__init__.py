"""Training step after step, on as many mini-batches as there are, with evaluation and clipping between updates."""
