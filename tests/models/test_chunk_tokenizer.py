"""Chunks as ids: whole, without special tokens, and by a tokenizer that is known by all that its ids depend on."""

import hashlib
import json
import shutil

import pytest
import tokenizers
from models import tiny_models
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from corag_ray.errors import ConfigError
from corag_ray.models import chunk_tokenizer
from corag_ray.models.chunk_tokenizer import ChunkTokenizer, without_surrogates

KINDS = ["bert", "cased_bert", "xlm_roberta", "roberta"]
TEXTS = tiny_models.sample_texts()


@pytest.fixture(scope="module", params=KINDS)
def folder(request, tmp_path_factory):
    return getattr(tiny_models, request.param)(tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def cased(tmp_path_factory):
    return tiny_models.cased_bert(tmp_path_factory.mktemp("cased"))


def lists(found):
    return [ids.tolist() for ids in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("plain", "plain"), ("a\ud800b", "a\ufffdb"), ("\udfff\ud83d", "\ufffd\ufffd"), ("\U0001f600", "\U0001f600")],
)
def test_each_surrogate_is_replaced_and_nothing_else_is(text, expected):
    assert without_surrogates(text) == expected


def test_ids_are_those_of_transformers_without_special_tokens_and_are_not_cut(folder):
    texts = [*TEXTS[:20], "", "a\ud800b", "tower " * 1000]
    reference = AutoTokenizer.from_pretrained(folder)
    found = ChunkTokenizer.load(folder).ids(texts)
    for text, ids in zip(texts, found, strict=True):
        assert ids.dtype == "int32"
        assert ids.tolist() == reference(without_surrogates(text), add_special_tokens=False)["input_ids"]
    assert len(found[-1]) >= 1000  # the models have 128 positions


def test_a_configuration_that_tokenizer_json_contradicts_counts_as_it_does_in_transformers(cased):
    raw = Tokenizer.from_file(str(cased / "tokenizer.json")).encode("Tower", add_special_tokens=False).ids
    [found] = ChunkTokenizer.load(cased).ids(["Tower"])
    assert found.tolist() == AutoTokenizer.from_pretrained(cased)("Tower", add_special_tokens=False)["input_ids"] != raw


def test_behind_a_blank_ids_are_what_a_word_and_the_text_have_beyond_the_word(folder):
    reference = AutoTokenizer.from_pretrained(folder)
    whole, word = reference([f"tower {text}" for text in TEXTS[:20]], add_special_tokens=False)["input_ids"], "tower"
    behind = len(reference(word, add_special_tokens=False)["input_ids"])
    alone = ChunkTokenizer.load(folder)
    later = alone.behind_a_blank()
    assert lists(later.ids(TEXTS[:20])) == [ids[behind:] for ids in whole]
    byte_level = "Ġ" in reference.get_vocab()
    assert (later is not alone, later.key != alone.key) == (byte_level, byte_level)
    assert (lists(later.ids(TEXTS[:20])) != lists(alone.ids(TEXTS[:20]))) == byte_level


def test_a_tokenizers_own_cutting_and_filling_up_is_off(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=10)
    tokenizer.save(str(copy / "tokenizer.json"))
    cut, whole = map(ChunkTokenizer.load, (copy, folder))
    texts = ["the tower is high", "a"]
    assert lists(cut.ids(texts)) == lists(whole.ids(texts))
    assert cut.key == whole.key


def test_the_key_is_a_hash_of_what_transformers_makes_of_the_folder_wherever_it_lies(folder, tmp_path):
    made = AutoTokenizer.from_pretrained(folder).backend_tokenizer.to_str()
    whole = f"{chunk_tokenizer.FORMAT_VERSION}\n{tokenizers.__version__}\n{made}"
    expected = hashlib.sha256(whole.encode()).hexdigest()[:16]
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert ChunkTokenizer.load(folder).key == ChunkTokenizer.load(copy).key == expected
    assert ChunkTokenizer.like(AutoTokenizer.from_pretrained(folder).backend_tokenizer).key == expected


def test_the_key_changes_with_the_configuration_the_format_and_the_librarys_version(cased, tmp_path, monkeypatch):
    copy = shutil.copytree(cased, tmp_path / "copy")
    settings = json.loads((copy / "tokenizer_config.json").read_text()) | {"do_lower_case": True}
    (copy / "tokenizer_config.json").write_text(json.dumps(settings))
    keys = {ChunkTokenizer.load(cased).key, ChunkTokenizer.load(copy).key}
    with monkeypatch.context() as patched:
        patched.setattr(chunk_tokenizer, "FORMAT_VERSION", 99)
        keys.add(ChunkTokenizer.load(cased).key)
    monkeypatch.setattr(tokenizers, "__version__", "99.0")
    keys.add(ChunkTokenizer.load(cased).key)
    assert len(keys) == 4


def test_code_for_the_tokenizer_is_not_run_and_gives_none(cased, tmp_path):
    copy = shutil.copytree(cased, tmp_path / "copy")
    settings = json.loads((copy / "tokenizer_config.json").read_text())
    settings |= {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": [None, "own.Own"]}}
    (copy / "tokenizer_config.json").write_text(json.dumps(settings))
    (copy / "own.py").write_text("raise SystemExit('run')")
    assert ChunkTokenizer.load(copy) is None


def test_a_model_with_code_whose_tokenizer_has_none_is_loaded(tmp_path):
    coded = ChunkTokenizer.load(tiny_models.with_code(tmp_path, code="raise SystemExit('run')"))
    assert lists(coded.ids(["a"])) == [
        AutoTokenizer.from_pretrained(tmp_path)("a", add_special_tokens=False)["input_ids"]
    ]


def test_a_folder_without_a_tokenizer_or_with_a_damaged_one_is_named(cased, tmp_path):
    copy = shutil.copytree(cased, tmp_path / "copy")
    (tmp_path / "empty").mkdir()
    (copy / "tokenizer.json").write_text("{}")
    for folder in (copy, tmp_path / "empty"):
        with pytest.raises(ConfigError, match=rf"{folder.name} holds no tokenizer that transformers can load: "):
            ChunkTokenizer.load(folder)
    shutil.copy(cased / "tokenizer.json", copy)
    (copy / "tokenizer_config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"copy holds no tokenizer that transformers can load: "):
        ChunkTokenizer.load(copy)
