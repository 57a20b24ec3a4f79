"""A packaged cross-encoder: put together once, refused in one sentence, and asked by its name alone."""

import errno
import importlib.util
import os
import shutil
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from models import tiny_models
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from corag_ray import identity, names
from corag_ray.batch.estimate import not_estimated
from corag_ray.build import build_cross_encoder, chunk_tokenizers
from corag_ray.config import Config
from corag_ray.datasets.assemble import Dataset
from corag_ray.errors import ConfigError, DataError, MissingModelError
from corag_ray.identity import reranker_identities, run_fingerprint
from corag_ray.models import low_rank
from corag_ray.models.calibration import Calibration, read_calibrations
from corag_ray.models.combination_weights import CARD, CURVES
from corag_ray.models.low_rank import difference
from corag_ray.models.packaged import INSTALL_COMMAND, MINILM, PackagedModel
from corag_ray.models.packaged_rerankers import (
    BASE,
    CHECKPOINT,
    DIFFERENCE,
    PACKAGED_RERANKERS,
    WEIGHTS,
    WHOLE,
    PackagedReranker,
    encoder_weights,
)
from corag_ray.prepare import prepare_weights
from corag_ray.settling import settle
from corag_ray.types import Chunk, Document, Question

NAME, OTHER = "passage_facts", "passage_explanations"
MATRIX = "bert.encoder.layer.1.intermediate.dense.weight"
DATA = Dataset("d", (Document("a", "text"),), (Question("q", "why?"),), 0, "c0", "q0")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A checkpoint of the real architecture without a head."""
    folder = tiny_models.bert(tmp_path_factory.mktemp("encoder"))
    weights = load_file(folder / CHECKPOINT)
    inner = {name.removeprefix("bert."): weight for name, weight in weights.items() if name.startswith("bert.")}
    inner["embeddings.position_ids"] = torch.arange(128)[None]
    save_file(inner, folder / CHECKPOINT, metadata={"format": "pt"})
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "corag_ray"


@pytest.fixture
def base(encoder):
    """A package that is surely here, whose weights are that encoder."""

    def unpack(source, target):
        shutil.copytree(encoder, target, dirs_exist_ok=True)

    return PackagedModel("iniconfig", "METADATA", unpack)


def trained_from(encoder, seed=1):
    """The encoder with a head, one matrix moved in two directions and a bias moved."""
    torch.manual_seed(seed)
    weights = {name: weight for name, weight in encoder_weights(encoder).items() if weight.is_floating_point()}
    weights |= {"classifier.weight": torch.randn(1, 32), "classifier.bias": torch.randn(1)}
    weights[MATRIX] = weights[MATRIX] + torch.randn(64, 2) @ torch.randn(2, 32)
    weights["bert.encoder.layer.1.output.dense.bias"] += 1
    return weights


@pytest.fixture
def pack(tmp_path, base, encoder, monkeypatch):
    """Packs the model of a seed under a packaged reranker's name, which stands for it from then on."""

    def packed(name=NAME, seed=1, told_base=base.revision):
        home = tmp_path / f"{name}-{seed}"
        home.mkdir(exist_ok=True)
        told = difference(encoder_weights(encoder), trained_from(encoder, seed), 20_000)
        save_file(told, home / DIFFERENCE, metadata={BASE: told_base})
        reranker = PackagedReranker(name, "facts", home, base)
        monkeypatch.setitem(PACKAGED_RERANKERS, name, reranker)
        return reranker

    monkeypatch.setattr(PackagedModel, "folder", _only(base))
    monkeypatch.setattr(names, "WINDOW_TOKENS", 128)
    return packed


def _only(base):
    """Unpacks that package alone: these tests need the weights of no other."""
    unpacked = PackagedModel.folder
    return lambda model: unpacked(model) if model == base else None


def asking(*rerankers, **values):
    methods = {name: {"strategy": {"kind": "ranked"}, "reranker": name} for name in rerankers}
    return Config.model_validate({"methods": methods, "dtype": "float32"} | values)


def inode(folder):
    return (folder / CHECKPOINT).stat().st_ino


def test_what_is_put_together_loads_as_the_model_that_was_trained(pack, encoder):
    folder = pack().folder()
    model, told = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    trained = trained_from(encoder)
    assert model.config.num_labels == 1 and not told["missing_keys"]
    assert {name for name, _ in model.named_parameters()} == set(trained)
    for name, weight in model.named_parameters():
        assert torch.allclose(weight, trained[name], atol=0.02), name
    assert torch.equal(model.classifier.weight, trained["classifier.weight"])
    assert load_file(folder / CHECKPOINT)["bert.embeddings.position_ids"].dtype == torch.int64
    assert (folder / "tokenizer.json").read_bytes() == (encoder / "tokenizer.json").read_bytes()


def test_it_is_put_together_once_and_apart_from_other_weights(pack):
    reranker = pack()
    assert reranker.state == "at first use"
    folder = reranker.folder()
    before = inode(folder)
    assert (reranker.folder(), inode(folder), reranker.state) == (folder, before, "yes")
    other = pack(seed=2)
    assert other.folder() != folder != pack(OTHER).folder() != other.folder()
    assert inode(folder) == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / CHECKPOINT).write_bytes((folder / CHECKPOINT).read_bytes()[:-1]),
        lambda folder: (folder / CHECKPOINT).write_bytes((folder / CHECKPOINT).read_bytes()[:-4] + b"\0\0\0\1"),
        lambda folder: (folder / "config.json").unlink(),
        lambda folder: (folder / WHOLE).unlink(),
        lambda folder: (folder / WHOLE).write_bytes(b"\xff"),
    ],
    ids=["cut short", "changed", "incomplete", "half made", "unreadable mark"],
)
def test_a_folder_that_is_damaged_or_half_made_is_made_anew(pack, cache, damage):
    reranker = pack()
    folder = reranker.folder()
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    before = inode(folder)
    damage(folder)
    assert reranker.state == "at first use"
    assert reranker.folder() == folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
    assert inode(folder) != before
    assert [path.name for path in cache.iterdir() if path.name.startswith(".")] == []


def test_two_at_once_get_one_whole_folder_and_leave_nothing_behind(pack, base, cache, monkeypatch):
    both = threading.Barrier(2, timeout=60)
    merged = low_rank.merged
    monkeypatch.setattr(low_rank, "merged", lambda *given: (both.wait(), merged(*given))[1])
    reranker = pack()
    base.folder()
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: reranker.folder(), range(2))
    assert one == other and reranker.state == "yes"
    assert set(cache.iterdir()) == {one, base.folder()}


def test_a_full_disk_is_one_sentence_and_leaves_nothing_behind(pack, base, cache, monkeypatch):
    reranker = pack()
    base.folder()

    def fill(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Path, "write_bytes", fill)
    with pytest.raises(MissingModelError, match=r"No space left on device.*XDG_CACHE_HOME"):
        reranker.folder()
    assert list(cache.iterdir()) == [base.folder()]


def test_without_weights_every_way_in_says_where_they_come_from(tmp_path, base, pack, monkeypatch):
    pack()
    absent = PackagedReranker(NAME, "facts", tmp_path / "nowhere", base)
    monkeypatch.setitem(PACKAGED_RERANKERS, NAME, absent)
    for asked in (
        lambda: absent.revision,
        absent.folder,
        lambda: prepare_weights(asking(NAME)),
        lambda: reranker_identities(asking(NAME)),
    ):
        with pytest.raises(MissingModelError) as caught:
            asked()
        assert str(caught.value) == (
            f"there are no weights of 'passage_facts' in {tmp_path}/nowhere: install a corag_ray that has them, or "
            "make some with `python -m jobs.train_reranker` and "
            "`python -m jobs.pack_reranker --model FOLDER --name passage_facts`."
        )
    assert absent.state == "no weights"
    assert absent.calibration() is None
    prepare_weights(asking("bm25"))


def test_without_the_package_of_the_base_the_command_that_installs_it_is_told(pack):
    bare = PackagedReranker(NAME, "facts", pack().home, PackagedModel("corag-no-such-weights", ".zip", None))
    for asked in (lambda: bare.revision, bare.folder):
        with pytest.raises(MissingModelError, match="'corag-no-such-weights' is not installed") as caught:
            asked()
        assert INSTALL_COMMAND in str(caught.value)
    assert INSTALL_COMMAND in bare.state


def test_a_difference_that_is_damaged_or_of_another_base_is_refused(pack, base, cache):
    with pytest.raises(DataError, match=rf"is the difference from other 9, and {base.revision} is installed\.$"):
        pack(seed=3, told_base="other 9").folder()
    reranker = pack(seed=4)
    save_file(
        {"bert.none.left": torch.ones(2, 1), "bert.none.right": torch.ones(1, 2)},
        reranker.home / DIFFERENCE,
        metadata={BASE: base.revision},
    )
    with pytest.raises(DataError, match="is no difference from"):
        reranker.folder()
    whole = (pack().home / DIFFERENCE).read_bytes()
    (reranker.home / DIFFERENCE).write_bytes(whole[:-10])
    with pytest.raises(DataError, match=r"difference\.safetensors is damaged .*: install corag_ray again\.$"):
        reranker.folder()
    assert [path.name for path in cache.iterdir() if "passage" in path.name] == []


def test_its_name_is_enough_and_each_machine_puts_it_together_for_itself(pack, tmp_path, monkeypatch):
    pack()
    config = settle(asking(NAME))
    prepare_weights(config)
    assert config.cross_encoders == {} and "cache" not in config.model_dump_json()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "of-another-node"))
    reranker = build_cross_encoder(config, NAME)
    assert [path.name for path in (tmp_path / "of-another-node" / "corag_ray").glob("*passage_facts*")] != []
    prepared = reranker.prepare("Who built the tower?", [Chunk(0, "a", 0, 0, 9, "Eiffel built it.", 5)], [0])
    [score] = reranker.score([(prepared, (0,))])
    assert 0 < score.calibrated < 1 and reranker.windows([(prepared, (0,))]) == [1]
    assert names.reranker_traits(config) == {NAME: {"order_sensitive": True, "monotone": False}}
    assert names.asked_cross_encoders(config) == [NAME] and not names.runs_code(config, NAME)
    assert not_estimated(config) == ["the cross-encoders"]
    assert len(chunk_tokenizers(config)) == 1


def test_a_window_of_512_tokens_is_pooled_as_any_cross_encoders(pack, monkeypatch):
    pack()
    monkeypatch.setattr(names, "WINDOW_TOKENS", 512)
    entry = names.cross_encoder_entry(asking(NAME), NAME)
    plain = Config.model_validate({"cross_encoders": {"mine": {"folder": "f"}}}).cross_encoders["mine"]
    assert (entry.max_tokens, entry.pooling, entry.backend) == (512, plain.pooling, plain.backend)


def test_it_is_put_together_beforehand_and_only_where_a_method_asks_it(pack):
    reranker = pack()
    prepare_weights(asking("bm25"))
    assert reranker.state == "at first use"
    prepare_weights(asking(NAME))
    assert reranker.state == "yes"


def test_without_flag_embedding_it_is_refused_beforehand(pack, monkeypatch):
    reranker = pack()
    installed = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "FlagEmbedding" else installed(name))
    with pytest.raises(MissingModelError, match=r"corag_ray\[rerankers\]"):
        prepare_weights(asking(NAME))
    assert reranker.state == "at first use"


def test_its_name_is_taken_and_suggested():
    with pytest.raises(ConfigError, match="'passage_facts' is the name of a reranker that is there already"):
        prepare_weights(asking("bm25", cross_encoders={NAME: {"folder": "f"}}))
    with pytest.raises(ConfigError, match=r"did you mean 'passage_facts'\?"):
        prepare_weights(asking("passage_fact"))


def test_weights_count_in_memo_and_fingerprint_and_the_machines_cache_does_not(pack, tmp_path, monkeypatch):
    seen = []
    for name, seed in ((NAME, 1), (NAME, 2), (OTHER, 1)):
        pack(name, seed)
        seen.append((reranker_identities(asking(name))[name], run_fingerprint(asking(name), DATA)))
    assert len({own for own, _ in seen}) == len({own for _, own in seen}) == 3
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    pack()
    sums = identity.weights_hash
    monkeypatch.setattr(identity, "weights_hash", lambda folder: sums(folder) + "rounded otherwise")
    assert (reranker_identities(asking(NAME))[NAME], run_fingerprint(asking(NAME), DATA)) == seen[0]


def test_its_curve_is_the_one_that_was_fitted_for_these_very_weights(pack):
    first, second = pack(), pack(seed=2)
    entry = {"reranker": NAME, "revision": second.revision, "version": 1, "slope": 2.0, "offset": -1.0}
    read_calibrations.cache_clear()
    for reranker in (first, second):
        (reranker.home / CURVES).write_text(f"[{str(entry).replace(chr(39), chr(34))}]")
    assert names.calibrations(asking(NAME)) == {NAME: Calibration(2.0, -1.0, 1)}
    pack()
    assert names.calibrations(asking(NAME)) == {NAME: None}


def test_the_package_has_a_folder_for_each_expert_and_its_base_is_minilm():
    assert set(PACKAGED_RERANKERS) == {NAME, OTHER}
    for name, reranker in PACKAGED_RERANKERS.items():
        assert (reranker.name, reranker.home, reranker.base) == (name, WEIGHTS / name, MINILM)


def test_weights_card_and_curve_of_every_reranker_trained_here_are_part_of_the_wheel():
    root = Path(__file__).parents[1]
    settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["corag_ray"]
    files = [path for path in WEIGHTS.rglob("*") if path.is_file()]
    files += [reranker.home / file for reranker in PACKAGED_RERANKERS.values() for file in (DIFFERENCE, CARD, CURVES)]
    inside = [path.relative_to(root / "corag_ray") for path in files]
    assert len(inside) > 6
    assert [path for path in inside if not any(_fits(path, pattern) for pattern in patterns)] == []
    assert settings["project"]["license"] == "Apache-2.0 AND CC-BY-SA-4.0"


def _fits(path, pattern):
    """Whether setuptools takes a file for a pattern: a star is of one folder."""
    return len(path.parts) == len(Path(pattern).parts) and path.match(pattern)
