"""Chunks as ids: whole, without special tokens, and by a tokenizer that is known by its file."""

import hashlib
import shutil

import pytest
from models import tiny_models

from corag_ray.errors import ConfigError
from corag_ray.models.chunk_tokenizer import ChunkTokenizer, tokenizer_key, without_surrogates


@pytest.fixture(scope="module", params=["bert", "xlm_roberta"])
def folder(request, tmp_path_factory):
    return getattr(tiny_models, request.param)(tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("plain", "plain"), ("a\ud800b", "a\ufffdb"), ("\udfff\ud83d", "\ufffd\ufffd"), ("\U0001f600", "\U0001f600")],
)
def test_each_surrogate_is_replaced_and_nothing_else_is(text, expected):
    assert without_surrogates(text) == expected


def test_ids_are_those_of_transformers_without_special_tokens_and_are_not_cut(folder):
    from transformers import AutoTokenizer

    texts = [*tiny_models.sample_texts()[:20], "", "a\ud800b", "tower " * 1000]
    reference = AutoTokenizer.from_pretrained(folder)
    found = ChunkTokenizer.load(folder).ids(texts)
    for text, ids in zip(texts, found, strict=True):
        assert ids.dtype == "int32"
        assert ids.tolist() == reference(without_surrogates(text), add_special_tokens=False)["input_ids"]
    assert len(found[-1]) >= 1000  # the models have 128 positions


def test_a_tokenizers_own_cutting_and_filling_up_is_off(folder, tmp_path):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=10)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    texts = ["the tower is high", "a"]
    cut, whole = (ChunkTokenizer.load(of).ids(texts) for of in (tmp_path, folder))
    assert [ids.tolist() for ids in cut] == [ids.tolist() for ids in whole]


def test_the_key_is_a_hash_of_tokenizer_json_wherever_it_lies(folder, tmp_path):
    shutil.copy(folder / "tokenizer.json", tmp_path)
    expected = hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()[:16]
    assert tokenizer_key(folder) == tokenizer_key(tmp_path) == ChunkTokenizer.load(tmp_path).key == expected
    with (tmp_path / "tokenizer.json").open("a") as file:
        file.write("\n")
    assert tokenizer_key(tmp_path) != expected


def test_a_folder_without_tokenizer_json_has_no_key_and_a_damaged_one_is_named(tmp_path):
    assert tokenizer_key(tmp_path) is None
    assert tokenizer_key(tmp_path / "nowhere") is None
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"tokenizer\.json is no tokenizer that can be read"):
        ChunkTokenizer.load(tmp_path)
    (tmp_path / "folder" / "tokenizer.json").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"cannot read .*tokenizer\.json: Is a directory"):
        tokenizer_key(tmp_path / "folder")
