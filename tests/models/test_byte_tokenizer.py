"""Bytes as token counts: by hand, and never fewer than a real byte-level tokenizer's."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag_ray.models.byte_tokenizer import ByteTokenizer
from corag_ray.models.generator import ChatTokenizer
from corag_ray.models.packaged import SMOLLM2

BYTES = ByteTokenizer("bytes", 4096, template_tokens=10)


def test_counts_and_offsets_by_hand():
    assert BYTES.count(["", "ab", "é", "光x", "\ud800"]) == [0, 2, 2, 4, 3]
    assert BYTES.offsets(["", "aéb", "光x"]) == [[], [0, 1, 1, 2], [0, 0, 0, 1]]
    assert BYTES.count_prompts(["ab", ""]) == [12, 10]


@pytest.fixture(scope="module")
def real():
    return ChatTokenizer(SMOLLM2.folder(), "smollm2")


@settings(max_examples=300, deadline=None)
@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_the_count_is_never_below_a_byte_level_tokenizers(real, text):
    bound = ByteTokenizer("bytes", 4096)
    assert bound.count([text])[0] >= real.count([text])[0]
    assert bound.count_prompts([text])[0] >= real.count_prompts([text])[0]
