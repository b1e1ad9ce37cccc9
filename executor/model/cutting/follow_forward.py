"""Cut a model where named modules are called, by following its forward once with torch.fx.

    forward:   a = embed(x);  b = layers.0(a);  c = layers.1(b);  y = head(c + a)          at = ["layers.1", "head"]
    through    stage 0:  x -> (b, a)        stage 1:  (b, a) -> (c, a)        stage 2:  (c, a) -> y
    direct     stage 0:  x -> (b, a)        stage 1:  b -> c                  stage 2:  (c, a) -> y         a by Skip(0, 2)

Only modules on the way to a cut are looked into; all others are called as they are, whatever they do inside. Weights that several
stages use stay one and the same in all of them (`executor.model.ties`): nothing of them goes over a cut.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import reduce
from typing import Any

from torch import fx, nn

from executor.model.cutting.apart import apart
from executor.model.skips import Skip
from executor.model.stages import Stages
from schedir.errors import ArgumentError, RefusedError

REMEDY = "give its stages as a list of modules instead"


def cut_forward(model: nn.Module, at: Sequence[str], *, num_inputs: int | None, direct: bool) -> Stages:
    """Return the stages; a new one begins where a module of `at` is called first. Raises ArgumentError, RefusedError.

    `num_inputs`: how many arguments the model is called with; None: those without a default. `direct`: what a stage behind the next
    one needs goes there by a skip connection, not through the stages between.
    """
    graph = _follow(model, at, num_inputs)
    stage = _stages_of(graph, at, type(model).__name__)
    _read_everywhere(model, graph, stage)
    ways = _Ways(graph, stage, direct=direct)
    ways.check(type(model).__name__)
    stages = [_stage(model, graph, stage, ways=ways, number=number) for number in range(len(at) + 1)]
    return Stages.of_whole(apart(stages), skips=ways.skips())


class _Tracer(fx.Tracer):
    """Looks into modules on the way to a cut only."""

    def __init__(self, at: Sequence[str]) -> None:
        super().__init__()
        self._at = at

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002 - torch calls it so
        return not any(name.startswith(f"{module_qualified_name}.") for name in self._at)


def _follow(model: nn.Module, at: Sequence[str], num_inputs: int | None) -> fx.Graph:
    """Return what the model's forward does; it must do the same in training and evaluation."""
    modes = {module: module.training for module in model.modules()}
    try:
        found = []
        for mode in (False, True):
            model.train(mode)
            found.append(_trace(model, at, num_inputs))
    finally:
        for module, mode in modes.items():
            module.training = mode
    evaluating, training = found
    if str(evaluating) != str(training):
        raise RefusedError(
            f"forward of {type(model).__name__} does something else in training than in evaluation, outside the modules that it "
            f"calls (as dropout(x, training=self.training) does): make it a module, or {REMEDY}"
        )
    return training


def _trace(model: nn.Module, at: Sequence[str], num_inputs: int | None) -> fx.Graph:
    parameters = list(inspect.signature(model.forward).parameters.values())
    count = num_inputs if num_inputs is not None else sum(each.default is inspect.Parameter.empty for each in parameters)
    fixed = {each.name: each.default for each in parameters[count:] if each.default is not inspect.Parameter.empty}
    try:
        graph = _Tracer(at).trace(model, concrete_args=fixed)
    except (fx.proxy.TraceError, TypeError, AttributeError, ValueError, NotImplementedError, RuntimeError) as error:
        text = " ".join(str(error).split())[:120]
        raise RefusedError(f"forward of {type(model).__name__} cannot be followed ({text}): {REMEDY}") from error
    for unused in [node for node in graph.nodes if node.op == "placeholder"][count:]:
        for check in list(unused.users):  # that it still is what it was fixed to
            graph.erase_node(check)
        graph.erase_node(unused)
    return graph


def _stages_of(graph: fx.Graph, at: Sequence[str], name: str) -> dict[fx.Node, int]:
    """Return the stage of every node; what forward reads of the model itself belongs to the first stage that uses it."""
    stage: dict[fx.Node, int] = {}
    reached = 0
    for node in graph.nodes:
        if node.op == "call_module" and reached < len(at) and _inside(str(node.target), at[reached]):
            reached += 1
        stage[node] = reached
    if reached < len(at):
        before = f" behind {at[reached - 1]}" if reached else ""
        raise ArgumentError(f"{name} does not call {at[reached]}{before}: name modules in the order in which they are called")
    for node in graph.nodes:
        if node.op == "get_attr" and node.users:
            stage[node] = min(stage[user] for user in node.users)
    if 0 not in {stage[node] for node in graph.nodes if node.op not in {"placeholder", "get_attr"}}:
        raise ArgumentError(f"{name} calls nothing before {at[0]}, so the first stage would be empty: name a later module")
    return stage


def _read_everywhere(model: nn.Module, graph: fx.Graph, stage: dict[fx.Node, int]) -> None:
    """Let every stage that uses a parameter read it itself."""
    for node in [node for node in graph.nodes if node.op == "get_attr"]:
        if not isinstance(reduce(getattr, str(node.target).split("."), model), nn.Parameter):
            continue
        for later in sorted({stage[user] for user in node.users} - {stage[node]}):
            with graph.inserting_after(node):
                again = graph.node_copy(node)
            stage[again] = later
            for user in [user for user in node.users if stage[user] == later]:
                user.replace_input_with(node, again)


def _inside(target: str, name: str) -> bool:
    return target == name or target.startswith(f"{name}.")


class _Ways:
    """How values come from the stage that makes them to those that use them."""

    def __init__(self, graph: fx.Graph, stage: dict[fx.Node, int], *, direct: bool) -> None:
        self.last = max(stage.values())
        made = [(node, stage[node], {stage[user] for user in node.users}) for node in graph.nodes]
        crosses = _is_neighbours if direct else _leads_over
        self._chain = [[node for node, at, users in made if crosses(at, users, number)] for number in range(self.last + 1)]
        """By stage: what the one before it gives it."""
        self._skipped = {
            (source, target): found
            for source in range(self.last if direct else 0)
            for target in range(source + 2, self.last + 1)
            if (found := [node for node, at, users in made if at == source and target in users])
        }
        """By (source, target): what goes over a skip connection."""

    def check(self, name: str) -> None:
        """Raise RefusedError where a stage would get nothing of the one before it."""
        for number in range(1, self.last + 1):
            if not self._chain[number]:
                raise RefusedError(
                    f"{name}: stage {number} uses nothing that stage {number - 1} makes, so nothing would go there: give "
                    'skips="through", or cut elsewhere'
                )

    def inputs(self, number: int) -> list[fx.Node]:
        """Return a stage's arguments."""
        return self._chain[number] + [node for (_, target), found in self._skipped.items() if target == number for node in found]

    def outputs(self, number: int) -> tuple[list[fx.Node], list[fx.Node]]:
        """Return what a stage gives to the next one, and what goes over its skip connections."""
        return self._chain[number + 1], [node for (source, _), found in self._skipped.items() if source == number for node in found]

    def takes_skips(self, number: int) -> bool:
        """Tell whether skip connections end at a stage."""
        return any(target == number for _, target in self._skipped)

    def skips(self) -> list[Skip]:
        """Return the skip connections; a stage's outputs are numbered by target behind those for the next stage."""
        found: list[Skip] = []
        used = dict.fromkeys(range(self.last + 1), 0)
        for (source, target), nodes in self._skipped.items():
            begin = len(self._chain[source + 1]) + used[source]
            found.append(Skip(source, target, tuple(range(begin, begin + len(nodes)))))
            used[source] += len(nodes)
        return found


def _is_neighbours(made: int, used: set[int], number: int) -> bool:
    return made + 1 == number and number in used


def _leads_over(made: int, used: set[int], number: int) -> bool:
    return made < number <= max(used, default=-1)


def _stage(model: nn.Module, graph: fx.Graph, stage: dict[fx.Node, int], *, ways: _Ways, number: int) -> nn.Module:
    """Return one stage as a module whose arguments and results are what goes over its cuts."""
    made = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    inputs = [node for node in graph.nodes if node.op == "placeholder"] if number == 0 else ways.inputs(number)
    for node in inputs:
        copies[node] = made.placeholder(node.name)
    for node in graph.nodes:
        if stage[node] == number and node.op not in {"placeholder", "output"}:
            copies[node] = made.node_copy(node, copies.__getitem__)
    if number == ways.last:
        (output,) = (node for node in graph.nodes if node.op == "output")
        made.output(fx.map_arg(output.args[0], copies.__getitem__))
    else:
        chain, skipped = ([copies[node] for node in nodes] for nodes in ways.outputs(number))
        single = len(chain) == 1
        if single and ways.takes_skips(number + 1):
            sent: list[Any] = [(chain[0],), *skipped]  # one argument beside others, even if it is a tuple
        else:
            sent = [*chain, *skipped]
        made.output(sent[0] if len(sent) == 1 else tuple(sent))
    return fx.GraphModule(model, made, class_name=f"{type(model).__name__}Stage{number}")


__all__ = ["cut_forward"]
