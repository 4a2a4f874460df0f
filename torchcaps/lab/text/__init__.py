"""Language: hidden states of frozen transformers as the input of capsule networks.

``load_encoder`` gives a language model, ``EmbeddingCache`` keeps its hidden states, ``TextLoader`` makes batches,
``predict`` says what a trained network makes of a text. Needs the extra: ``pip install 'torchcaps[text]'``.
"""

from torchcaps.lab.text.cache import Embedded, EmbeddingCache, Estimate
from torchcaps.lab.text.encoders import CARRIED, Encoder, Hidden, load_encoder
from torchcaps.lab.text.loader import OnTheFly, TextLoader
from torchcaps.lab.text.tables import is_table, read_table
from torchcaps.lab.text.tasks import (
    Predicted,
    class_names,
    examples,
    fit_to_texts,
    make_loader,
    predict,
    predict_with,
    shared_encoder,
)

__all__ = [
    "CARRIED",
    "Embedded",
    "EmbeddingCache",
    "Encoder",
    "Estimate",
    "Hidden",
    "OnTheFly",
    "Predicted",
    "TextLoader",
    "class_names",
    "examples",
    "fit_to_texts",
    "is_table",
    "load_encoder",
    "make_loader",
    "predict",
    "predict_with",
    "read_table",
    "shared_encoder",
]
