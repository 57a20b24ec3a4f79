"""The generator's real tokenizer, loaded once."""

import pytest

from corag_ray.models.packaged import SMOLLM2


@pytest.fixture(scope="session")
def chat_tokenizer():
    from corag_ray.models.generator import ChatTokenizer

    return ChatTokenizer(SMOLLM2.folder(), "smollm2")
