"""A causal language model over many token sequences at once, each shared prefix computed only once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from transformers import DynamicCache, PreTrainedModel

MIN_SHARED = 16
"""Tokens that sequences must share before they are computed together: shorter pieces cost more than they save."""
BATCH_TOKENS = 16384
"""Padded tokens a forward pass, at most."""
BATCH_PADDING = 100
"""Padding tokens a forward pass, at most: reading more costs what one more pass over the weights does (two cores)."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of tokens of the prefix tree; `start` is the position of its first token in its sequences."""

    parent: int | None
    start: int
    tokens: tuple[int, ...]


def prefix_tree(sequences: Sequence[Sequence[int]], min_shared: int = MIN_SHARED) -> tuple[list[Segment], list[int]]:
    """Segments, parents first, and for each sequence the number of its last segment; no segment is empty.

    Every sequence ends in a segment that only its equals share. `min_shared` is at least 2.

    Raises:
        ValueError: an empty sequence.
    """
    equals: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for i, sequence in enumerate(sequences):
        if not sequence:
            raise ValueError("a sequence holds no token")
        equals[tuple(sequence)].append(i)
    segments: list[Segment] = []
    last = [0] * len(sequences)
    unsplit: list[tuple[int | None, int, list[tuple[int, ...]]]] = [(None, 0, list(equals))]
    while unsplit:
        parent, start, members = unsplit.pop()
        branches: dict[tuple[int, ...], list[tuple[int, ...]]] = defaultdict(list)
        for member in members:
            branches[member[start : start + min_shared]].append(member)
        for branch in branches.values():
            end = len(branch[0]) if len(branch) == 1 else _shared_end(branch, start)
            segments.append(Segment(parent, start, branch[0][start:end]))
            if len(branch) > 1:
                unsplit.append((len(segments) - 1, end, branch))
            else:
                for i in equals[branch[0]]:
                    last[i] = len(segments) - 1
    return segments, last


def _shared_end(branch: Sequence[tuple[int, ...]], start: int) -> int:
    """Where the common prefix ends; each sequence keeps at least its last token for itself."""
    low, high = min(branch), max(branch)  # what the extremes share, all share
    end = start
    limit = min(len(member) for member in branch) - 1
    while end < limit and low[end] == high[end]:
        end += 1
    return end


@dataclass(frozen=True, slots=True)
class Reading:
    """What the model made of the sequences.

    By segment, `hidden` holds the last layer's states, [tokens, width], and `states` the keys and values,
    [layers, 2, key heads, tokens, head width] (None where they are not wanted any more).
    """

    segments: list[Segment]
    last: list[int]
    hidden: list[torch.Tensor]
    states: list[torch.Tensor | None]

    @property
    def tokens(self) -> int:
        """Tokens that were computed, padding left out."""
        return sum(len(segment.tokens) for segment in self.segments)

    def tail(self, sequence: int, length: int) -> torch.Tensor:
        """The hidden states of a sequence's last tokens, [length, width]."""
        parts: list[torch.Tensor] = []
        number: int | None = self.last[sequence]
        while number is not None and sum(map(len, parts)) < length:
            parts.append(self.hidden[number])
            number = self.segments[number].parent
        return torch.cat(parts[::-1])[-length:]

    def past(self, sequences: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of whole sequences, [layers, 2, sequences, key heads, longest, head width], and the mask.

        The sequences stand at the right; the mask, [sequences, longest], is 1 where there is a token.
        """
        return _gather(self.segments, self.states, [self.last[i] for i in sequences])


def tail_log_probability(model: PreTrainedModel, reading: Reading, sequence: int, tail: Sequence[int]) -> float:
    """Mean log probability, in nats a token, of a sequence's last tokens, which are `tail`, given all before them."""
    with torch.inference_mode():
        before = reading.tail(sequence, len(tail) + 1)[:-1]  # the state before a token predicts it
        logits = model.get_output_embeddings()(before).float()
        return float(logits.log_softmax(dim=-1).gather(1, torch.tensor(tail)[:, None]).mean())


def read(
    model: PreTrainedModel, sequences: Sequence[Sequence[int]], *, keep: bool, min_shared: int = MIN_SHARED
) -> Reading:
    """Compute every segment of the sequences' prefix tree, level by level; `keep` the states of whole sequences."""
    segments, last = prefix_tree(sequences, min_shared)
    children = [0] * len(segments)
    level = [0] * len(segments)
    for number, segment in enumerate(segments):
        if segment.parent is not None:
            children[segment.parent] += 1
            level[number] = level[segment.parent] + 1
    hidden: list[torch.Tensor] = [torch.empty(0)] * len(segments)
    states: list[torch.Tensor | None] = [None] * len(segments)
    for depth in range(max(level, default=-1) + 1):
        members = [number for number in range(len(segments)) if level[number] == depth]
        for batch in _batches(members, segments):
            output, new = _forward(model, segments, states, batch)
            for row, number in enumerate(batch):
                length = len(segments[number].tokens)
                hidden[number] = output[row, :length].clone()
                if keep or children[number]:
                    states[number] = new[:, :, row, :, :length].clone()
    return Reading(segments, last, hidden, states)


def _batches(members: Sequence[int], segments: Sequence[Segment]) -> Iterator[list[int]]:
    """Segments of a level, shortest first, bounded in padded tokens (those before them count too) and in padding."""
    batch: list[int] = []
    padding = reach = 0
    for number in sorted(members, key=lambda n: (len(segments[n].tokens), segments[n].start, n)):
        segment = segments[number]
        length = len(segment.tokens)
        padding += len(batch) * (length - len(segments[batch[-1]].tokens)) if batch else 0
        reach = max(reach, segment.start + length)
        if batch and (padding > BATCH_PADDING or reach * (len(batch) + 1) > BATCH_TOKENS):
            yield batch
            batch, padding, reach = [], 0, segment.start + length
        batch.append(number)
    if batch:
        yield batch


def _forward(
    model: PreTrainedModel, segments: Sequence[Segment], states: Sequence[torch.Tensor | None], batch: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states, [batch, longest, width], and new keys and values, [layers, 2, batch, key heads, longest, head]."""
    lengths = [len(segments[number].tokens) for number in batch]
    longest = max(lengths)
    ids = torch.zeros((len(batch), longest), dtype=torch.long)
    mask = torch.zeros((len(batch), longest), dtype=torch.long)
    for row, number in enumerate(batch):
        ids[row, : lengths[row]] = torch.tensor(segments[number].tokens)
        mask[row, : lengths[row]] = 1
    starts = torch.tensor([segments[number].start for number in batch])
    cache = DynamicCache()
    before = 0
    parents = [segments[number].parent for number in batch]
    with torch.inference_mode():
        if (present := [p for p in parents if p is not None]) and len(present) == len(parents):
            past, past_mask = _gather(segments, states, present)
            before = past_mask.shape[1]
            mask = torch.cat([past_mask, mask], dim=1)
            for layer, (keys, values) in enumerate(past):
                cache.update(keys, values, layer)
            del past
        output = model.base_model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=starts[:, None] + torch.arange(longest),
            past_key_values=cache,
            use_cache=True,
        )
        new = torch.stack(
            [torch.stack([layer.keys[:, :, before:], layer.values[:, :, before:]]) for layer in cache.layers]
        )
    return output.last_hidden_state, new


def _gather(
    segments: Sequence[Segment], states: Sequence[torch.Tensor | None], ends: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The keys and values from the root to the end of each given segment, right-aligned, and their mask."""
    lengths = [segments[number].start + len(segments[number].tokens) for number in ends]
    longest = max(lengths)
    first = states[ends[0]]
    assert first is not None
    layers, _, heads, _, width = first.shape
    past = torch.zeros((layers, 2, len(ends), heads, longest, width), dtype=first.dtype)
    mask = torch.zeros((len(ends), longest), dtype=torch.long)
    for row, end in enumerate(ends):
        offset = longest - lengths[row]
        mask[row, offset:] = 1
        number: int | None = end
        while number is not None:
            segment, state = segments[number], states[number]
            assert state is not None, "the states of a segment with children are kept"
            place = offset + segment.start
            past[:, :, row, :, place : place + len(segment.tokens)] = state
            number = segment.parent
    return past, mask
