"""Folders that hold no cross-encoder, or half of one: each is refused in one sentence that says what is wrong."""

import json
import shutil

import FlagEmbedding
import pytest
import torch
from models import tiny_models
from transformers import BertConfig, BertForSequenceClassification, BertModel

from corag_ray.errors import ConfigError
from corag_ray.models.cross_encoder_loading import load_checkpoint
from corag_ray.models.torch_setup import Compute


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return tiny_models.bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "copy")


def rewrite(path, **changes):
    """A JSON file with keys changed, or struck out where the new value is None."""
    written = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in written.items() if value is not None}))


def refusal(folder, **settings):
    with pytest.raises(ConfigError) as caught:
        load_checkpoint(folder, "mine", 128, Compute(threads=1), **settings)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_weights_come_in_float32_whatever_is_computed_in(whole):
    checkpoint = load_checkpoint(whole, "mine", 128, Compute(threads=1, dtype="bfloat16"))
    assert {weight.dtype for weight in checkpoint.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("labels", [{"id2label": {"0": "LABEL_0"}}, {"id2label": None, "label2id": None}])
def test_a_checkpoint_without_a_head_is_refused_whatever_labels_its_configuration_names(folder, labels):
    BertModel.from_pretrained(folder).save_pretrained(folder)
    rewrite(folder / "config.json", **labels)
    assert refusal(folder) == (
        f"'mine': the weights in {folder} lack classifier.bias and 1 more, which would be drawn at random: "
        "take a checkpoint that was trained to rerank."
    )


@pytest.mark.parametrize("share", [0, 0.001, 0.5, 0.99])
def test_a_half_downloaded_file_of_weights_is_said_to_be_damaged_with_code_or_without(folder, share):
    file = folder / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    for remote_code in (False, True):
        said = refusal(folder, remote_code=remote_code)
        assert said.startswith(f"'mine': the weights in {folder} are damaged, fetch them again: SafetensorError: ")


@pytest.mark.parametrize("share", [0, 0.5])
def test_so_is_a_damaged_file_of_the_older_kind(folder, share):
    weights = BertForSequenceClassification.from_pretrained(folder).state_dict()
    (folder / "model.safetensors").unlink()
    file = folder / "pytorch_model.bin"
    torch.save(weights, file)
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    assert refusal(folder).startswith("'mine': ")
    file.write_bytes(b"no pickle")
    assert refusal(folder).startswith(f"'mine': the weights in {folder} are damaged, fetch them again: UnpicklingError")


def test_a_package_that_loading_misses_is_said_in_one_line_of_its_own_words(folder, monkeypatch):
    def fails(*_, **__):
        raise ImportError("\nit requires SentencePiece\nsee there")

    monkeypatch.setattr(FlagEmbedding.FlagAutoReranker, "from_finetuned", fails)
    assert refusal(folder).endswith("holds no cross-encoder that transformers can load: it requires SentencePiece")


def test_a_tokenizer_that_pads_on_the_left_is_refused(folder):
    rewrite(folder / "tokenizer_config.json", padding_side="left")
    assert refusal(folder) == (
        f"'mine': the tokenizer in {folder} pads on the left, for a model that reads the last position: here "
        "shorter pairs are filled on the right, so its scores would depend on the company."
    )


def test_a_model_of_fewer_tokens_than_its_tokenizer_is_refused(folder):
    config = BertConfig(vocab_size=799, max_position_embeddings=128, **tiny_models.SHAPE)
    BertForSequenceClassification(config).save_pretrained(folder)
    assert refusal(folder) == (
        f"'mine': the model in {folder} knows 799 tokens and the tokenizer beside it 800: they are not of one "
        "checkpoint."
    )
