"""Mistaken folders and windows are refused by what a folder tells of itself."""

import importlib.util
import json

import pytest

from corag_ray.errors import ConfigError, MissingModelError
from corag_ray.models.checkpoint_config import check_flag_embedding_installed, check_folder, check_window, configuration


def folder_with(folder, weights="model.safetensors", **values):
    (folder / "config.json").write_text(json.dumps(values))
    if weights:
        (folder / weights).touch()
    return folder


def test_a_folder_that_is_none_or_lacks_a_part_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no folder .*nowhere"):
        check_folder("mine", tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"holds no model, it lacks config.json and weights .*: name the folder of"):
        check_folder("mine", tmp_path)
    with pytest.raises(ConfigError, match=r"it lacks weights \(\*.safetensors\): "):
        check_folder("mine", folder_with(tmp_path, weights=None))


@pytest.mark.parametrize("weights", ["model.safetensors", "model-00001-of-00002.safetensors", "pytorch_model.bin"])
def test_weights_of_every_usual_name_are_found(tmp_path, weights):
    check_folder("mine", folder_with(tmp_path, weights))


@pytest.mark.parametrize(("kind", "reads"), [("bert", 512), ("xlm-roberta", 510)])
def test_a_window_beyond_learned_positions_is_refused(tmp_path, kind, reads):
    folder = folder_with(tmp_path, model_type=kind, max_position_embeddings=512)
    check_window("mine", folder, reads)
    with pytest.raises(ConfigError, match=f"reads at most {reads} tokens, so max_tokens cannot be 8,192"):
        check_window("mine", folder, 8192)


@pytest.mark.parametrize("told", [{}, {"model_type": "new", "max_position_embeddings": 512}, {"model_type": "bert"}])
def test_what_a_folder_does_not_tell_is_left_to_loading(tmp_path, told):
    check_window("mine", folder_with(tmp_path, **told), 8192)


@pytest.mark.parametrize("content", [None, b"[]", b"\xff{", b"[" * 100_000])
def test_a_file_that_cannot_be_read_tells_nothing(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    assert configuration(tmp_path) == {}


def test_without_flag_embedding_the_command_that_installs_it_is_told(monkeypatch):
    check_flag_embedding_installed()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingModelError, match=r"pip install 'corag_ray\[rerankers\]'"):
        check_flag_embedding_installed()
