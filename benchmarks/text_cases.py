"""What routing costs beside the language model that it reads: forward passes alone, as the language model is frozen."""

from collections.abc import Callable

import torch

from benchmarks.cases import OURS, Case, Target, Work
from benchmarks.operations import GAUSSIAN, count_operations
from torchcaps.capsules import Capsules
from torchcaps.layers import DenseCapsules

SENTENCES, TOKENS, DEPTH, WIDTH, FEATURES, PARTS = 64, 40, 7, 384, 64, 64
ENCODER = "encoder's forward pass"


def _routing() -> Work:
    torch.manual_seed(0)
    layer = DenseCapsules(None, FEATURES, PARTS, 2, "heinsen").eval()
    tokens = Capsules(torch.randn(SENTENCES, TOKENS * DEPTH, FEATURES), torch.full((SENTENCES, TOKENS * DEPTH), 9.0))

    def work() -> object:
        with torch.inference_mode():
            return layer(tokens)

    return work


def _encoder() -> Work:
    """A BERT of MiniLM's sizes; what its weights are does not change the time."""
    try:
        import transformers
    except ImportError as error:
        raise ValueError("this needs transformers; run: pip install 'torchcaps[text]'") from error
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=WIDTH, num_hidden_layers=DEPTH - 1, num_attention_heads=12, intermediate_size=4 * WIDTH
    )
    model = transformers.BertModel(config).eval()
    ids = torch.randint(config.vocab_size, (SENTENCES, TOKENS))

    def work() -> object:
        with torch.inference_mode():
            return model(input_ids=ids, output_hidden_states=True).hidden_states

    return work


def text_routing() -> Case:
    votes = SENTENCES * TOKENS * DEPTH * PARTS * 2
    return Case(
        f"Heinsen, text: {SENTENCES} sentences of {TOKENS} tokens × {DEPTH} layers → {PARTS} capsules, forward, beside "
        "the forward pass of MiniLM",
        {OURS: _routing, ENCODER: _encoder},
        (Target(ENCODER, 10.0),),
        operations=count_operations(votes, FEATURES, GAUSSIAN, training=False),
    )


TEXT: dict[str, Callable[[], Case]] = {"text-routing": text_routing}
