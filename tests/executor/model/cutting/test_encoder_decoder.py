"""Models of transformers with an encoder and a decoder, cut between the encoder's blocks: as the whole model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from executor.model.cutting.split import split
from executor.model.hugging_face import token_loss, tokens
from executor.model.pipeline import Pipeline
from executor.training import train
from schedir.compiler import compile_program
from schedir.errors import RefusedError
from schedir.schedules.registry import build_program

transformers = pytest.importorskip("transformers", reason="the extra `hf` is not installed")

VOCABULARY, LENGTH, ANSWER, SAMPLES, MINI_BATCHES = 13, 6, 4, 4, 3


def config(kind: str, **sizes: Any) -> Any:
    special = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, "decoder_start_token_id": 0}
    return getattr(transformers, kind)(vocab_size=VOCABULARY, d_model=8, **special, **sizes)


def t5() -> nn.Module:
    """Its first block makes the distances between tokens, which it hands to the others."""
    model: nn.Module = transformers.T5ForConditionalGeneration(
        config("T5Config", num_layers=3, num_heads=2, d_kv=4, d_ff=16, dropout_rate=0.0)
    )
    return model


def bart() -> nn.Module:
    layers = {"encoder_layers": 3, "decoder_layers": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 8, "dropout": 0.0}
    model: nn.Module = transformers.BartForConditionalGeneration(config("BartConfig", **layers, **heads))
    return model


MODELS = {"t5": t5, "bart": bart}


def made(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name]().double()


def data() -> list[tuple[dict[str, Tensor], Tensor]]:
    """Mini-batches of questions of several lengths, and answers; what the decoder has said so far stands one place behind them."""
    generator = torch.Generator().manual_seed(1)
    mask = (torch.arange(LENGTH) < torch.tensor([[2], [6], [5], [4]])).long()
    found = []
    for _ in range(MINI_BATCHES):
        ids = torch.randint(1, VOCABULARY, (SAMPLES, LENGTH), generator=generator)
        answer = torch.randint(1, VOCABULARY, (SAMPLES, ANSWER), generator=generator)
        said = torch.cat([torch.zeros(SAMPLES, 1, dtype=torch.long), answer[:, :-1]], 1)
        found.append(({"input_ids": ids, "attention_mask": mask, "decoder_input_ids": said}, answer))
    return found


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def reference(name: str) -> tuple[list[float], dict[str, Tensor]]:
    """Train the whole model in one piece; return losses and weights."""
    model = made(name).train()
    optimizer, losses = sgd(model.parameters()), []
    for inputs, answer in data():
        optimizer.zero_grad()
        loss = token_loss(model(**inputs), answer)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.state_dict()


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "schedule", "num_stages", "recompute"),
    [
        ("t5", "1f1b", 3, "never"),
        ("bart", "1f1b", 3, "never"),
        pytest.param("t5", "zb-h1", 3, "never", marks=SLOW),
        pytest.param("t5", "gpipe", 2, "always", marks=SLOW),
        pytest.param("bart", "zb-h1", 2, "always", marks=SLOW),
    ],
)
def test_stages_train_as_the_whole_model(*, name: str, schedule: str, num_stages: int, recompute: str) -> None:
    """Losses, and all weights behind three updates, to 1e-10 in float64; the embedding is the decoder's and the head's, too."""
    losses, expected = reference(name)
    pipeline = Pipeline(split(made(name), num_stages), loss=token_loss, loss_weight=tokens, optimizer=sgd)
    program = build_program(schedule, num_devices=num_stages, num_micro_batches=2)
    graph = compile_program(program, recompute=recompute, ties=pipeline.ties)
    run = train(graph, pipeline, data(), timeout=60)

    assert pipeline.ties == ((0, num_stages - 1),)
    assert run.losses == pytest.approx(losses, abs=1e-10)
    found = run.state_dict()
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert torch.allclose(found[key], value, rtol=0, atol=1e-10), key


@pytest.mark.parametrize("name", MODELS)
def test_the_decoder_is_the_last_stage_s(name: str) -> None:
    stages = split(made(name), 3)
    of_decoder = [sum("decoder." in key for key in stage.state_dict()) for stage in stages]

    assert of_decoder[:2] == [0, 0]
    assert of_decoder[2] > 20


def test_a_decoder_of_more_blocks_than_the_encoder_is_refused() -> None:
    """It would be cut between the decoder's blocks, all of which need what the encoder gives."""
    sizes = {"num_layers": 1, "num_decoder_layers": 2, "num_heads": 2, "d_kv": 4, "d_ff": 16}
    model = transformers.T5ForConditionalGeneration(config("T5Config", **sizes))
    with pytest.raises(RefusedError, match=r"encoder of T5\w+ gives more than a tensor to the blocks: give its stages as a list"):
        split(model, 2)


def test_what_blocks_hand_on_beside_the_hidden_state_goes_to_the_next_stage() -> None:
    """Hidden state and distances of heads x queries x keys; the distances are the first block's, and train it from everywhere."""
    first, *_ = split(made("t5"), 3)
    hidden, distances, arguments, named = first(**data()[0][0])

    assert hidden.shape == (SAMPLES, LENGTH, 8)
    assert distances.shape[1:] == (2, LENGTH, LENGTH)
    assert distances.requires_grad
    assert (arguments, list(named)) == ((), ["input_ids", "attention_mask", "decoder_input_ids"])
