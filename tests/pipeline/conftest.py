"""Chunk stores for the pipeline's tests."""

import random

import pytest
from made_selector import LETTERS, store_of


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Thirty chunks of 1 to 8 random letters."""
    chance = random.Random(1)
    texts = [" ".join(chance.choices(LETTERS, k=chance.randint(1, 8))) for _ in range(30)]
    return store_of(tmp_path_factory.mktemp("store"), texts)


@pytest.fixture
def three(tmp_path):
    """Three chunks that cost 4, 3 and 5."""
    return store_of(tmp_path, ["a x x", "a b", "b c z z"])
