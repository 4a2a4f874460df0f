"""Language: hidden states of frozen transformers as the input of capsule networks.

``load_encoder`` gives a language model, ``EmbeddingCache`` keeps its hidden states, ``TextFeed`` makes batches of them,
``predict`` says what a trained network makes of a text. Needs the extra: ``pip install 'torchcaps[text]'``.
"""

from torchcaps.lab.text.cache import Embedded, EmbeddingCache, Estimate
from torchcaps.lab.text.encoders import CARRIED, Encoder, Hidden, load_encoder
from torchcaps.lab.text.feed import OnTheFly, TextFeed
from torchcaps.lab.text.prediction import Predicted, class_names, predict, predict_with
from torchcaps.lab.text.tables import is_table, read_table
from torchcaps.lab.text.tasks import examples, fit_to_texts, is_text, make_feed, shared_encoder

__all__ = [
    "CARRIED",
    "Embedded",
    "EmbeddingCache",
    "Encoder",
    "Estimate",
    "Hidden",
    "OnTheFly",
    "Predicted",
    "TextFeed",
    "class_names",
    "examples",
    "fit_to_texts",
    "is_table",
    "is_text",
    "load_encoder",
    "make_feed",
    "predict",
    "predict_with",
    "read_table",
    "shared_encoder",
]
