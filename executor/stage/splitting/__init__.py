"""A backward in two halves: the input's gradient first, the weights' later, on one recorded graph."""
