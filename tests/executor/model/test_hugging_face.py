"""Tiny models of Hugging Face's transformers, from a config, in stages: as the whole model, whatever the schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from executor.model.cutting.split import split
from executor.model.hugging_face import class_loss, next_token_loss, next_tokens, token_loss, tokens
from executor.model.pipeline import Pipeline
from executor.profiling.options import ProfileOptions
from executor.profiling.profiling import profile
from executor.recipe.recipe import Recipe
from executor.trainer.trainer import Trainer
from executor.training import train
from schedir.errors import ArgumentError, RefusedError
from simulator import simulate
from tests.executor.serial.serial_versions import train_named_serially
from tests.executor.small.models import compiled, sgd

transformers = pytest.importorskip("transformers", reason="the extra `hf` is not installed")

VOCABULARY, LENGTH, CLASSES = 13, 6, 4
SAMPLES = 4


def text_config(kind: str, **options: Any) -> Any:
    """Return a tiny config without dropout."""
    shape = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None, "tie_word_embeddings": False}
    return getattr(transformers, kind)(**shape, **options)


def gpt2(**dropout: float) -> nn.Module:
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0} | dropout
    config = text_config("GPT2Config", n_positions=LENGTH, n_embd=8, n_layer=4, n_head=2, **dropout)
    model: nn.Module = transformers.GPT2LMHeadModel(config)
    return model


def bert() -> nn.Module:
    sizes = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 16}
    config = text_config(
        "BertConfig", **sizes, max_position_embeddings=LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    model: nn.Module = transformers.BertForMaskedLM(config)
    return model


def vit() -> nn.Module:
    sizes = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.ViTConfig(**sizes, image_size=8, patch_size=4, num_labels=CLASSES)
    model: nn.Module = transformers.ViTForImageClassification(config)
    return model


def resnet() -> nn.Module:
    config = transformers.ResNetConfig(
        embedding_size=4, hidden_sizes=[4, 8, 8], depths=[1, 1, 1], layer_type="basic", num_labels=CLASSES
    )
    model: nn.Module = transformers.ResNetForImageClassification(config)
    return model


@dataclass(frozen=True)
class Architecture:
    """A model, what it is trained on and how."""

    make: Callable[..., nn.Module]
    blocks: str
    num_blocks: int
    loss: Callable[[Any, Tensor], Tensor]
    loss_weight: Callable[[Tensor], Tensor] | None = None
    images: bool = False

    def model(self, **options: float) -> Any:
        torch.manual_seed(0)
        return self.make(**options).double()

    def data(self, count: int) -> list[tuple[Any, Tensor]]:
        """Mini-batches, those of text with paddings that differ from sample to sample, and labels -100 there."""
        generator = torch.Generator().manual_seed(1)
        if self.images:
            images = [torch.randn(SAMPLES, 3, 8, 8, generator=generator, dtype=torch.float64) for _ in range(count)]
            return [({"pixel_values": image}, torch.arange(SAMPLES) % CLASSES) for image in images]
        mask = (torch.arange(LENGTH) < torch.tensor([[2], [6], [5], [4]])).long()
        made = [torch.randint(1, VOCABULARY, (SAMPLES, LENGTH), generator=generator) for _ in range(count)]
        return [({"input_ids": ids, "attention_mask": mask}, torch.where(mask > 0, ids, -100)) for ids in made]

    def pipeline(self, stages: Any, rate: float = 0.1) -> Pipeline:
        return Pipeline(
            stages, loss=self.loss, loss_weight=self.loss_weight, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=rate)
        )

    def reference(self, count: int) -> tuple[list[float], dict[str, Tensor]]:
        """Train the whole model in one piece; return losses and the last gradients."""
        model = self.model().train()
        optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
        for inputs, target in self.data(count):
            optimizer.zero_grad()
            loss = self.loss(model(**inputs), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


ARCHITECTURES = {
    "gpt2": Architecture(gpt2, "transformer.h", 4, next_token_loss, next_tokens),
    "bert": Architecture(bert, "bert.encoder.layer", 3, token_loss, tokens),
    "vit": Architecture(vit, "vit.layers", 3, class_loss, images=True),
    "resnet": Architecture(resnet, "resnet.encoder.stages", 3, class_loss, images=True),
}
NORMALIZED_OVER_SAMPLES = {"resnet"}
"""BatchNorm's statistics are those of a micro-batch, so only one of m = 1 equals the whole."""
every_architecture = pytest.mark.parametrize("name", ARCHITECTURES)


@cache
def reference(name: str) -> tuple[list[float], dict[str, Tensor]]:
    return ARCHITECTURES[name].reference(2)


def assert_trains_as_the_whole(name: str, schedule: str, num_micro_batches: int, **options: Any) -> None:
    architecture = ARCHITECTURES[name]
    losses, gradients = reference(name)
    run = train(
        compiled(schedule, 3, num_micro_batches, **options),
        architecture.pipeline(split(architecture.model(), 3)),
        architecture.data(2),
        timeout=60,
    )
    assert run.losses == pytest.approx(losses, abs=1e-10)
    assert run.gradients.keys() == gradients.keys()
    for key, gradient in gradients.items():
        assert torch.allclose(run.gradients[key], gradient, rtol=0, atol=1e-10), key


@every_architecture
def test_a_model_is_cut_between_its_blocks_under_the_names_that_it_has(name: str) -> None:
    architecture = ARCHITECTURES[name]
    model, blocks = architecture.model(), architecture.blocks
    stages = split(model, at=[f"{blocks}.1", f"{blocks}.2"])

    keys = [list(stage.state_dict()) for stage in stages]
    assert sorted(key for own in keys for key in own) == sorted(model.state_dict())
    for number, own in enumerate(keys):
        assert any(key.startswith(f"{blocks}.{number}.") for key in own)
    assert len(split(model, architecture.num_blocks)) == architecture.num_blocks


@every_architecture
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_stages_train_as_the_whole_model(name: str, schedule: str) -> None:
    """Losses and gradients of all parameters to 1e-10, in float64; a micro-batch of text has its own share of tokens."""
    assert_trains_as_the_whole(name, schedule, 1 if name in NORMALIZED_OVER_SAMPLES else 4)


@pytest.mark.slow
@every_architecture
@pytest.mark.parametrize(
    ("schedule", "recompute"), [("gpipe", "never"), ("gpipe", "always"), ("1f1b", "except-last"), ("zb-h1", "always")]
)
def test_stages_train_as_the_whole_model_on_every_schedule(name: str, schedule: str, recompute: str) -> None:
    assert_trains_as_the_whole(name, schedule, 1 if name in NORMALIZED_OVER_SAMPLES else 2, recompute=recompute)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        ("gpt2", "xpipe"),
        ("vit", "pipedream"),
        *(pytest.param(name, "xpipe", marks=SLOW) for name in ("bert", "vit", "resnet")),
        *(pytest.param(name, "pipedream", marks=SLOW) for name in ("gpt2", "bert", "resnet")),
    ],
)
def test_stages_train_without_a_flush(name: str, schedule: str) -> None:
    """One mini-batch again and again, so that the loss falls."""
    architecture = ARCHITECTURES[name]
    pipeline = Pipeline(
        split(architecture.model(), 3),
        loss=architecture.loss,
        loss_weight=architecture.loss_weight,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.02),
    )
    run = train(compiled(schedule, 3, 2, num_mini_batches=8), pipeline, architecture.data(1) * 8, timeout=60)

    assert run.losses[-1] < 0.95 * run.losses[0]
    assert all(torch.isfinite(value).all() for value in run.state_dict().values())


@pytest.mark.parametrize(
    ("schedule", "options"),
    [("pipedream", {}), ("xpipe", {"backward_weights": "stash", "horizon": "exact"}), ("xpipe", {"backward_weights": "stash"})],
)
def test_without_a_flush_every_stage_reads_the_versions_that_the_graph_names(schedule: str, options: dict[str, Any]) -> None:
    """GPT-2 in one piece, micro-batch by micro-batch on the weights of the version table; a micro-batch weighs its next tokens."""
    architecture, m = ARCHITECTURES["gpt2"], 2
    graph = compiled(schedule, 3, m, num_mini_batches=8, **options)
    data, stages = architecture.data(8), split(architecture.model(), 3)
    parts = []
    for inputs, labels in data:
        cut = [{name: value.tensor_split(m)[j] for name, value in inputs.items()} for j in range(m)]
        counts = [int((part[:, 1:] != -100).sum()) for part in labels.tensor_split(m)]
        parts += [(*pair, n / sum(counts)) for pair, n in zip(zip(cut, labels.tensor_split(m), strict=True), counts, strict=True)]
    losses, weights = train_named_serially(graph, architecture.model().train(), stages, parts=parts, loss=next_token_loss)

    pipeline = Pipeline(stages, loss=next_token_loss, loss_weight=next_tokens, optimizer=sgd)
    run = train(graph, pipeline, data, timeout=60)
    found = run.state_dict()
    assert len({graph.task(task).version for task in range(graph.num_compute_tasks)}) > 3  # it goes over several versions
    assert run.losses == pytest.approx(losses, abs=1e-10)
    assert {name for name, _ in architecture.model().named_parameters()} == weights.keys()
    for name, value in weights.items():
        assert torch.allclose(found[name], value, rtol=0, atol=1e-10), name


@pytest.mark.parametrize("schedule", ["1f1b", "xpipe"])
def test_d5_a_micro_batch_without_any_token_counts_nothing(schedule: str) -> None:
    """No NaN; and two micro-batches of unequal tokens give the gradients of one."""
    architecture = ARCHITECTURES["gpt2"]
    options = {} if schedule == "1f1b" else {"num_mini_batches": 5}
    (inputs, labels) = architecture.data(1)[0]
    labels = labels.clone()
    labels[2:] = -100  # the second of two micro-batches has no token at all
    runs = [
        train(
            compiled(schedule, 2, m, **options),
            architecture.pipeline(split(architecture.model(), 2), rate=0.0),
            [(inputs, labels)] * 5,
            timeout=60,
        )
        for m in (1, 2)
    ]

    assert runs[1].losses == pytest.approx(runs[0].losses, abs=1e-12)
    assert all(loss > 1 for loss in runs[1].losses)
    for key, gradient in runs[0].gradients.items():
        assert torch.allclose(runs[1].gradients[key], gradient, rtol=0, atol=1e-12), key


@pytest.mark.parametrize("recompute", ["never", "always"])
def test_dropout_is_the_same_for_the_same_seed(recompute: str) -> None:
    """In attention, in the embeddings and behind blocks; recomputed or not."""
    architecture = ARCHITECTURES["gpt2"]

    def losses(seed: int, mode: str = recompute) -> list[float]:
        model = architecture.model(resid_pdrop=0.3, embd_pdrop=0.3, attn_pdrop=0.3)
        graph = compiled("1f1b", 2, 2, recompute=mode)
        return train(graph, architecture.pipeline(split(model, 2)), architecture.data(2), seed=seed, timeout=60).losses

    assert losses(5) == losses(5)
    assert losses(5) != losses(6)
    assert losses(5) == pytest.approx(losses(5, "never"), abs=1e-12)


def test_the_model_is_cut_by_parameters_layers_or_time() -> None:
    """Embeddings and head are weights of the first and the last stage."""
    architecture = ARCHITECTURES["gpt2"]
    for balance in ("parameters", "layers", "time"):
        stages = split(architecture.model(), 2, balance=balance)
        assert [sum(f"transformer.h.{k}.ln_1.weight" in stage.state_dict() for k in range(4)) for stage in stages].count(0) == 0
    assert "transformer.wte.weight" in split(architecture.model(), 2)[0].state_dict()
    assert "lm_head.weight" in split(architecture.model(), 2)[1].state_dict()


def test_what_cannot_be_cut_so_is_refused_with_the_reason() -> None:
    model = ARCHITECTURES["gpt2"].model()
    with pytest.raises(ArgumentError, match="a model of 4 layers does not cut into 5 stages"):
        split(model, 5)
    with pytest.raises(ArgumentError, match=r"name some of its blocks transformer.h.1 .. transformer.h.3"):
        split(model, at=["transformer.h.0"])
    with pytest.raises(ArgumentError, match="is out of order: name blocks as they are called"):
        split(model, at=["transformer.h.2", "transformer.h.1"])
    with pytest.raises(RefusedError, match=r"GPT2LMHeadModel does not run on the example .*: give example=, an input of it"):
        split(model, 2, example={"tokens": torch.ones(1, 1)})


def test_tables_that_every_block_reads_are_in_every_stage() -> None:
    """Llama's rotary embedding has no parameters, and what it makes goes to all blocks."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(text_config("LlamaConfig", **sizes)).double()
    architecture = Architecture(lambda: model, "model.layers", 3, next_token_loss, next_tokens)
    inputs, labels = architecture.data(1)[0]
    expected = next_token_loss(model(**inputs), labels).item()
    run = train(compiled("1f1b", 3, 2), architecture.pipeline(split(model, 3), rate=0.0), [(inputs, labels)], timeout=60)

    assert run.losses == pytest.approx([expected], abs=1e-12)


def test_a_recipe_s_model_is_profiled_and_simulated() -> None:
    architecture = ARCHITECTURES["vit"]
    data = [({name: value.float() for name, value in inputs.items()}, labels) for inputs, labels in architecture.data(2)]
    recipe = Recipe(model=vit(), loss=class_loss, optimizer=torch.optim.SGD, data=lambda _: data, name="tiny ViT")
    costs = profile(recipe, ProfileOptions(num_stages=3, num_micro_batches=2, repeats=2, warm_up=1))

    assert recipe.most_stages == 3
    assert [row.name for row in costs.rows] == ["0", "1", "2"]
    predicted = simulate(compiled("1f1b", 3, 4), costs)
    assert predicted.makespan_s > 0


@pytest.mark.slow
@every_architecture
def test_a_checkpoint_fits_another_number_of_stages(name: str, tmp_path: Path) -> None:
    """Four mini-batches in one go, and two, saved, and two more with another cut."""
    architecture = ARCHITECTURES[name]
    data = architecture.data(4)

    def trainer(num_stages: int) -> Trainer:
        return Trainer(
            split(architecture.model(), num_stages),
            schedule="1f1b",
            num_micro_batches=1,
            loss=architecture.loss,
            loss_weight=architecture.loss_weight,
            optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.01),
            workers="threads",
        )

    with trainer(2) as whole:
        expected = [whole.step(*pair).loss for pair in data]
    with trainer(2) as first:
        found = [first.step(*pair).loss for pair in data[:2]]
        first.save(tmp_path)
    with trainer(3) as second:
        second.load(tmp_path)
        found += [second.step(*pair).loss for pair in data[2:]]
    assert found == pytest.approx(expected, abs=1e-12)


def tied() -> nn.Module:
    """GPT-2 as it is by default: its embedding is its head."""
    config = text_config("GPT2Config", n_positions=LENGTH, n_embd=8, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0)
    config.attn_pdrop, config.tie_word_embeddings = 0.0, True
    model: nn.Module = transformers.GPT2LMHeadModel(config)
    return model


def test_d8_an_embedding_that_is_the_head_too_trains_as_in_the_whole_model() -> None:
    architecture = Architecture(tied, "transformer.h", 2, next_token_loss, next_tokens)
    losses, _ = architecture.reference(3)
    stages = split(architecture.model(), 2)
    with Trainer(
        stages,
        num_micro_batches=2,
        loss=next_token_loss,
        loss_weight=next_tokens,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        workers="threads",
    ) as trainer:
        assert trainer.evaluate(architecture.data(1))["loss"] == pytest.approx(losses[0], abs=1e-10)
        found = [trainer.step(*pair).loss for pair in architecture.data(3)]
        state = trainer.state_dict()

    assert found == pytest.approx(losses, abs=1e-10)
    assert torch.equal(state["transformer.wte.weight"], state["lm_head.weight"])


def test_d8_without_a_flush_tied_weights_are_refused() -> None:
    architecture = Architecture(tied, "transformer.h", 2, next_token_loss, next_tokens)
    with pytest.raises(RefusedError, match="stages 0 and 1"):
        Trainer(
            split(architecture.model(), 2),
            schedule="xpipe",
            num_micro_batches=2,
            loss=next_token_loss,
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        )
