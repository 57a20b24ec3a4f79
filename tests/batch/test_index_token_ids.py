"""An index keeps its chunks as token ids of each cross-encoder that a method asks, and hands them to it."""

import dataclasses

import pytest
from tiny_run import config_values
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import BertPreTokenizer

from corag_ray import names
from corag_ray.batch.index_folder import ensure_index
from corag_ray.build import build_selector
from corag_ray.config import Config
from corag_ray.errors import ConfigError, DataError
from corag_ray.identity import index_spec
from corag_ray.indexing.merge import CHUNKS
from corag_ray.indexing.store import ChunkStore
from corag_ray.indexing.token_ids import open_token_ids
from corag_ray.indexing.versions import current_version
from corag_ray.models.chunk_tokenizer import ChunkTokenizer, tokenizer_key
from corag_ray.types import Document

pytestmark = pytest.mark.models


def checkpoint(folder, *words):
    """A folder with a tokenizer of these words; an index asks for no more of it."""
    folder.mkdir()
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(("?", *words))}, unk_token="?"))
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return checkpoint(tmp_path_factory.mktemp("models") / "mine", "The", "of", "Malk")


def asking(data, *asked, **folders):
    """The tiny run with these cross-encoders, and one method for each that is asked."""
    methods = {name: {"strategy": {"kind": "ranked"}, "reranker": name} for name in asked}
    cross_encoders = {name: {"folder": str(path), "max_tokens": 64} for name, path in folders.items()}
    return Config.model_validate(config_values(data) | {"methods": methods, "cross_encoders": cross_encoders})


def kept(index):
    """The keys of the current version's token ids."""
    return sorted(path.name.removeprefix("token_ids-") for path in current_version(index).glob("token_ids-*"))


def times(index):
    return {path: path.stat().st_mtime_ns for path in index.rglob("*") if path.is_file() and path.name != ".lock"}


def test_ids_come_with_the_index_for_each_tokenizer_asked_once(tiny_folder, tiny_dataset, tmp_path, folder):
    unused, without = checkpoint(tmp_path / "unused", "a"), tmp_path / "without"
    without.mkdir()
    models = {"mine": folder, "twin": folder, "unused": unused, "bare": without}
    told = []
    ensure_index(
        asking(tiny_folder, "mine", "twin", "bare", "bm25", **models),
        tiny_dataset,
        tmp_path / "index",
        lambda *done: told.append(done),
    )
    assert kept(tmp_path / "index") == [tokenizer_key(folder)]
    version = current_version(tmp_path / "index")
    store = ChunkStore.open(version / CHUNKS)
    stored = open_token_ids(version, tokenizer_key(folder), len(store))(range(len(store)))
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
    assert kept(tmp_path) == [tokenizer_key(folder)]
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
    [last] = open_token_ids(version, tokenizer_key(folder), chunks)([chunks - 1])
    assert last.tolist() == [1, 0, 0, 2, 3]
    ensure_index(config, tiny_dataset, tmp_path)
    assert (current_version(tmp_path), kept(tmp_path)) == (first, [tokenizer_key(folder)])


def test_a_tokenizer_that_cannot_be_read_is_named(tiny_folder, tiny_dataset, tmp_path):
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"damaged/tokenizer\.json is no tokenizer that can be read"):
        ensure_index(asking(tiny_folder, "mine", mine=damaged), tiny_dataset, tmp_path / "index")


class Handed:
    """A cross-encoder that notes what it is given, by its name."""

    memoised = False

    order_sensitive, monotone, stored = True, False, {}

    def __init__(self, folder, name, max_tokens, compute, calibration, remote_code, stored):
        self.stored[name] = stored


def test_a_cross_encoder_is_handed_the_ids_that_its_index_keeps(
    tiny_folder, tiny_dataset, tmp_path, folder, monkeypatch
):
    monkeypatch.setattr(names, "CROSS_ENCODER", f"{__name__}:Handed")
    later, without = checkpoint(tmp_path / "later", "a", "b"), tmp_path / "without"
    without.mkdir()
    ensure_index(asking(tiny_folder, "mine", mine=folder), tiny_dataset, tmp_path / "index")
    config = asking(tiny_folder, "mine", "later", "bare", mine=folder, later=later, bare=without)
    spec = index_spec(config, tiny_dataset)
    build_selector(config, tmp_path / "index", spec)
    [text] = ChunkStore.open(current_version(tmp_path / "index") / CHUNKS).texts_of([2])
    assert Handed.stored["mine"]([2])[0].tolist() == ChunkTokenizer.load(folder).ids([text])[0].tolist()
    assert (Handed.stored["later"], Handed.stored["bare"]) == (None, None)
    (current_version(tmp_path / "index") / f"token_ids-{tokenizer_key(folder)}" / "ids.npy").unlink()
    with pytest.raises(DataError, match="is damaged, delete that folder"):
        build_selector(config, tmp_path / "index", spec)
