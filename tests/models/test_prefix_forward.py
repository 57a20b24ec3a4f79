"""The prefix tree against its definition, and what is read through it against reading each sequence alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from corag_ray.models.prefix_forward import prefix_tree, read

tokens = st.lists(st.integers(0, 2), min_size=1, max_size=12)


def path(segments, number):
    """A sequence as its segments spell it."""
    spelled = []
    while number is not None:
        spelled[:0] = segments[number].tokens
        number = segments[number].parent
    return spelled


def test_shared_tokens_stand_in_one_segment():
    segments, last = prefix_tree([[1, 2, 3, 4], [1, 2, 3, 5, 6], [9, 9]], min_shared=2)
    assert [path(segments, number) for number in last] == [[1, 2, 3, 4], [1, 2, 3, 5, 6], [9, 9]]
    assert sorted(segment.tokens for segment in segments) == [(1, 2, 3), (4,), (5, 6), (9, 9)]


def test_less_than_the_least_shared_length_is_not_shared():
    segments, _ = prefix_tree([[1, 2, 3, 4], [1, 2, 3, 5]], min_shared=4)
    assert sorted(segment.tokens for segment in segments) == [(1, 2, 3, 4), (1, 2, 3, 5)]


def test_a_sequence_that_begins_another_keeps_its_last_token_for_itself():
    segments, last = prefix_tree([[1, 2, 3], [1, 2, 3, 4]], min_shared=2)
    assert segments[last[0]].tokens == (3,)
    assert segments[last[1]].tokens == (3, 4)


def test_equal_sequences_end_in_the_same_segment():
    _, last = prefix_tree([[1, 2], [1, 2], [3]])
    assert last[0] == last[1] != last[2]


def test_an_empty_sequence_is_refused():
    with pytest.raises(ValueError, match="no token"):
        prefix_tree([[1], []])


@given(st.lists(tokens, max_size=8), st.integers(2, 5))
def test_paths_spell_the_sequences_and_nothing_is_empty_or_computed_twice_for_nothing(sequences, min_shared):
    segments, last = prefix_tree(sequences, min_shared)
    assert [path(segments, number) for number in last] == sequences
    assert all(segment.tokens for segment in segments)
    assert all(s.parent is None or s.parent < n for n, s in enumerate(segments))
    for number, segment in enumerate(segments):
        assert len(path(segments, segment.parent)) == segment.start
        siblings = [s.tokens[:min_shared] for n, s in enumerate(segments) if s.parent == segment.parent and n != number]
        assert segment.tokens[:min_shared] not in siblings or len(segment.tokens) < min_shared


@pytest.fixture(scope="module")
def tiny():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def sequences():
    generator = torch.Generator().manual_seed(1)

    def draw(n):
        return torch.randint(0, 50, (n,), generator=generator).tolist()

    head, first, second = draw(30), draw(40), draw(25)
    return [head + draw(5), head + first + draw(9), head + first + second + draw(3), head + first + second, draw(7)]


def test_hidden_states_and_keys_are_those_of_each_sequence_read_alone(tiny, sequences):
    reading = read(tiny, sequences, keep=True)
    assert reading.tokens < sum(map(len, sequences))
    past, mask = reading.past(range(len(sequences)))
    for i, sequence in enumerate(sequences):
        with torch.inference_mode():
            alone = tiny.base_model(torch.tensor([sequence]), use_cache=True)
        torch.testing.assert_close(reading.tail(i, len(sequence)), alone.last_hidden_state[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(reading.tail(i, 4), alone.last_hidden_state[0, -4:], rtol=1e-4, atol=1e-5)
        assert mask[i].tolist() == [0] * (mask.shape[1] - len(sequence)) + [1] * len(sequence)
        for layer, expected in enumerate(alone.past_key_values.layers):
            found = past[layer, :, i, :, -len(sequence) :]
            torch.testing.assert_close(found[0], expected.keys[0], rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(found[1], expected.values[0], rtol=1e-4, atol=1e-5)


def test_states_nobody_needs_are_not_kept(tiny, sequences):
    reading = read(tiny, sequences, keep=False)
    assert all(reading.states[number] is None for number in reading.last)
    assert any(state is not None for state in reading.states)


def test_no_sequences_are_read_as_none(tiny):
    assert read(tiny, [], keep=True).tokens == 0
