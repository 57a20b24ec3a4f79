"""An index keeps its chunks as token ids of each cross-encoder that a method asks, and hands them to it."""

import dataclasses
import json

import pytest
from models import tiny_models
from tiny_run import config_values
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import BertPreTokenizer
from transformers import PreTrainedTokenizerFast

from corag_ray import names
from corag_ray.batch.folder_lock import locked
from corag_ray.batch.index_folder import ensure_index
from corag_ray.build import build_cross_encoder, build_embedder, build_selector
from corag_ray.config import Config
from corag_ray.errors import ConfigError, DataError
from corag_ray.identity import index_spec
from corag_ray.indexing.merge import CHUNKS
from corag_ray.indexing.open_index import open_index
from corag_ray.indexing.store import ChunkStore
from corag_ray.indexing.token_ids import open_token_ids
from corag_ray.indexing.versions import current_version
from corag_ray.models.chunk_tokenizer import ChunkTokenizer
from corag_ray.types import Document

pytestmark = pytest.mark.models


def checkpoint(folder, *words):
    """A folder with a tokenizer of these words; an index asks for no more of it."""
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(("?", *words))}, unk_token="?"))
    tokenizer.pre_tokenizer = BertPreTokenizer()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained(folder)
    (folder / "config.json").write_text("{}")
    return folder


def coded(folder):
    """One whose tokenizer is code of its own."""
    settings = checkpoint(folder, "a") / "tokenizer_config.json"
    auto_map = {"auto_map": {"AutoTokenizer": [None, "own.Own"]}}
    settings.write_text(json.dumps(json.loads(settings.read_text()) | auto_map))
    return folder


def key_of(folder):
    return ChunkTokenizer.load(folder).key


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return checkpoint(tmp_path_factory.mktemp("models") / "mine", "The", "of", "Malk")


def asking(data, *asked, **folders):
    """The tiny run with these cross-encoders, and one method for each that is asked."""
    methods = {name: {"strategy": {"kind": "ranked"}, "reranker": name} for name in asked}
    cross_encoders = {name: {"folder": str(path), "max_tokens": 128} for name, path in folders.items()}
    return Config.model_validate(config_values(data) | {"methods": methods, "cross_encoders": cross_encoders})


def kept(index):
    """The keys of the current version's token ids."""
    return sorted(path.name.removeprefix("token_ids-") for path in current_version(index).glob("token_ids-*"))


def times(index):
    return {path: path.stat().st_mtime_ns for path in index.rglob("*") if path.is_file() and path.name != ".lock"}


def test_ids_come_with_the_index_for_each_tokenizer_asked_once(tiny_folder, tiny_dataset, tmp_path, folder):
    unused = checkpoint(tmp_path / "unused", "a")
    models = {"mine": folder, "twin": folder, "unused": unused, "coded": coded(tmp_path / "coded")}
    told = []
    ensure_index(
        asking(tiny_folder, "mine", "twin", "coded", "bm25", **models),
        tiny_dataset,
        tmp_path / "index",
        lambda *done: told.append(done),
    )
    assert kept(tmp_path / "index") == [key_of(folder)]
    version = current_version(tmp_path / "index")
    store = ChunkStore.open(version / CHUNKS)
    stored = open_token_ids(version, key_of(folder), len(store))(range(len(store)))
    expected = ChunkTokenizer.load(folder).ids(list(store.iter_texts()))
    assert [ids.tolist() for ids in stored] == [ids.tolist() for ids in expected]
    assert told == [(0, 1), (1, 1), (len(store), len(store))]  # one shard, then all chunks


def test_an_index_that_is_there_gets_them_without_being_built_again(
    tiny_config, tiny_folder, tiny_dataset, tmp_path, folder
):
    ensure_index(tiny_config, tiny_dataset, tmp_path)
    assert kept(tmp_path) == []
    before = times(tmp_path)
    config = asking(tiny_folder, "mine", mine=folder)
    added = ensure_index(config, tiny_dataset, tmp_path)
    assert (added.changed, added.embedded) == (False, 0)
    after = times(tmp_path)
    assert kept(tmp_path) == [key_of(folder)]
    assert {path: time for path, time in after.items() if path in before} == before
    ensure_index(config, tiny_dataset, tmp_path)
    assert times(tmp_path) == after


def test_an_update_has_them_too_and_so_has_the_version_gone_back_to(tiny_folder, tiny_dataset, tmp_path, folder):
    config = asking(tiny_folder, "mine", mine=folder)
    ensure_index(config, tiny_dataset, tmp_path)
    first = current_version(tmp_path)
    changed = (*tiny_dataset.documents[1:], Document("new", "The new bridge of Malk"))
    ensure_index(config, dataclasses.replace(tiny_dataset, documents=changed, fingerprint="changed"), tmp_path)
    version = current_version(tmp_path)
    assert version != first
    chunks = len(ChunkStore.open(version / CHUNKS))
    [last] = open_token_ids(version, key_of(folder), chunks)([chunks - 1])
    assert last.tolist() == [1, 0, 0, 2, 3]
    ensure_index(config, tiny_dataset, tmp_path)
    assert (current_version(tmp_path), kept(tmp_path)) == (first, [key_of(folder)])


def test_a_tokenizer_that_cannot_be_read_is_named(tiny_folder, tiny_dataset, tmp_path):
    damaged = checkpoint(tmp_path / "damaged", "a")
    (damaged / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"damaged holds no tokenizer that transformers can load"):
        ensure_index(asking(tiny_folder, "mine", mine=damaged), tiny_dataset, tmp_path / "index")


class Handed:
    """A cross-encoder that notes what it is given, by its name."""

    memoised = False

    order_sensitive, monotone, stored = True, False, {}

    def __init__(self, folder, name, *_, stored, **others):
        self.stored[name] = stored


def test_a_cross_encoder_is_handed_the_ids_that_its_index_keeps_by_key(
    tiny_folder, tiny_dataset, tmp_path, folder, monkeypatch
):
    monkeypatch.setattr(names, "CROSS_ENCODER", f"{__name__}:Handed")
    config = asking(tiny_folder, "mine", mine=folder)
    ensure_index(config, tiny_dataset, tmp_path)
    build_selector(config, tmp_path, index_spec(config, tiny_dataset))
    [text] = ChunkStore.open(current_version(tmp_path) / CHUNKS).texts_of([2])
    of_key = Handed.stored["mine"]
    assert of_key(key_of(folder))([2])[0].tolist() == ChunkTokenizer.load(folder).ids([text])[0].tolist()
    assert of_key("f" * 16) is None
    (current_version(tmp_path) / f"token_ids-{key_of(folder)}" / "ids.npy").unlink()
    with pytest.raises(DataError, match="is damaged, delete that folder"):
        of_key(key_of(folder))


@pytest.mark.parametrize(("kind", "forms"), [("cased_bert", 1), ("roberta", 2)])
def test_scores_by_an_indexs_ids_are_those_by_texts(tiny_folder, tiny_dataset, tmp_path, kind, forms):
    config = asking(tiny_folder, "mine", mine=getattr(tiny_models, kind)(tmp_path / "model"))
    ensure_index(config, tiny_dataset, tmp_path / "index")
    assert len(kept(tmp_path / "index")) == forms
    index = open_index(tmp_path / "index", index_spec(config, tiny_dataset), build_embedder(config), "dense")
    rows = [3, 0, 1]
    chunks, scores = index.store.take(rows), []
    blank = [dataclasses.replace(chunk, text="") for chunk in chunks]
    for reranker, given in (
        (build_cross_encoder(config, "mine", index), blank),
        (build_cross_encoder(config, "mine"), chunks),
    ):
        prepared = reranker.prepare("How high is the tower?", given, rows)
        scores.append(reranker.score([(prepared, one) for one in [(0,), (1,), (0, 1), (1, 0)]]))
    assert scores[0] == scores[1]
    assert len(set(scores[0])) > 2  # one of the couples is read as a whole


def test_ids_that_cannot_be_written_are_one_warning_and_none_are_kept(
    tiny_config, tiny_folder, tiny_dataset, tmp_path, folder, caplog
):
    config = asking(tiny_folder, "mine", "other", mine=folder, other=checkpoint(tmp_path / "other", "a"))
    index = tmp_path / "index"
    ensure_index(tiny_config, tiny_dataset, index)
    (index / ".lock").unlink()
    (index / ".lock").mkdir()  # as in a folder that is read-only, no lock can be opened
    caplog.clear()
    assert not ensure_index(config, tiny_dataset, index).changed
    (index / ".lock").rmdir()
    (current_version(index) / f"token_ids-{min(map(key_of, (folder, tmp_path / 'other')))}.partial").write_text("file")
    (current_version(index) / f"token_ids-{max(map(key_of, (folder, tmp_path / 'other')))}.partial").write_text("file")
    assert not ensure_index(config, tiny_dataset, index).changed
    assert [message.partition(" to ")[0] for message in caplog.messages] == ["cannot write", "cannot write token ids"]
    assert all(message.endswith("tokenise the candidates' texts at every question.") for message in caplog.messages)
    assert [key for key in kept(index) if not key.endswith(".partial")] == []


def test_an_index_that_another_run_holds_is_waited_for(tiny_config, tiny_folder, tiny_dataset, tmp_path, folder):
    ensure_index(tiny_config, tiny_dataset, tmp_path)
    with locked(tmp_path), pytest.raises(DataError, match="another run is writing to"):
        ensure_index(asking(tiny_folder, "mine", mine=folder), tiny_dataset, tmp_path)
