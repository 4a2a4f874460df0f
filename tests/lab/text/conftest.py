"""Language models of a few hundred weights, made here: nothing is downloaded."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

WORDS = [
    "a",
    "an",
    "the",
    "film",
    "movie",
    "plot",
    "good",
    "great",
    "fine",
    "bad",
    "dull",
    "awful",
    "not",
    "very",
    "and",
]
WORDS += ["is", "was", "of", "it"]


def _tokenizer(words: Sequence[str], closed: bool):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] if closed else ["<unk>", "<end>"]
    vocabulary = {word: number for number, word in enumerate([*special, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=special[1] if closed else special[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    if not closed:
        return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<end>")
    tokenizer.post_processor = processors.TemplateProcessing(  # pyright: ignore[reportAttributeAccessIssue]
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    )


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two layers of 8 that reads 12 tokens."""
    transformers = pytest.importorskip("transformers", reason="needs torchcaps[text]")
    import torch

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("bert")
    config = transformers.BertConfig(
        vocab_size=4 + len(WORDS),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=12,
    )
    transformers.BertModel(config).save_pretrained(folder)
    _tokenizer(WORDS, closed=True).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def decoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 of three layers of 6, whose tokenizer adds nothing."""
    transformers = pytest.importorskip("transformers", reason="needs torchcaps[text]")
    import torch

    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("gpt")
    config = transformers.GPT2Config(vocab_size=2 + len(WORDS), n_embd=6, n_layer=3, n_head=2, n_positions=16)
    config.bos_token_id = config.eos_token_id = 1
    transformers.GPT2Model(config).save_pretrained(folder)
    _tokenizer(WORDS, closed=False).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def encoder(encoder_folder: Path):
    from torchcaps.lab.text import load_encoder

    return load_encoder(str(encoder_folder))


@pytest.fixture(scope="session")
def decoder(decoder_folder: Path):
    from torchcaps.lab.text import load_encoder

    return load_encoder(str(decoder_folder))


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """A table that can be learned: good words are positive."""
    rows = []
    for number in range(60):
        kind = number % 2
        word = (("bad", "dull", "awful"), ("good", "great", "fine"))[kind][number // 2 % 3]
        end = ("", " and it is", " of a plot")[number // 6 % 3]
        rows.append(f"the {WORDS[number % 5]} film is {word}{end},{('no', 'yes')[kind]}")
    path = tmp_path / "reviews.csv"
    path.write_text("review,liked\n" + "\n".join(rows) + "\n")
    return path
