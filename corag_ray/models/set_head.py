"""The set head: a small network over the token matches of a combination's chunks, in their order.

Late interaction keeps one number a query token, the best cosine of all chunks. The head sees, for every token, each
chunk's nearest vector itself: which tokens no chunk answers, which two chunks answer alike, which answer of two is
the likelier one, and who stands first.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from corag_ray.errors import DataError, MissingModelError
from corag_ray.models.combination_weights import WEIGHTS
from corag_ray.models.token_matches import TokenMatches

NEARNESS = 10.0
"""What late interaction's score counts for in the logit of a head that has learned nothing: candidates differ in it by
a tenth or two."""
FEW = 64
"""Asking times asked positions up to which attention is written out."""


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Sizes of a head, by default about 90,000 parameters.

    Attributes:
        dim: of the embedder's token vectors.
        projected: components that are kept of each.
        width: numbers that are learned for each token of each chunk.
        heads: of the attention.
        hidden: of the feed-forward parts.
        places: told apart within a combination; all further chunks share the last one.
    """

    dim: int
    projected: int = 32
    width: int = 48
    heads: int = 4
    hidden: int = 96
    places: int = 6

    @property
    def row(self) -> int:
        """Numbers of one row: the learned ones, the projected vector at unit length, and its cosine with the token."""
        return self.width + self.projected + 1


class SetHead(nn.Module):
    """From the rows of a combination's chunks to one logit.

    A row holds, for one token of the query, what one chunk has nearest to it, and is told how like it the likest and
    how near the nearest of the other chunks is: a mean, as attention takes it, is the same of one chunk and of two
    copies. For each token, attention runs over the rows of the chunks, each with its place, and over the row of no
    chunk, which stands before them and takes the sum. The logit is a sum of three: of what all chunks together answer
    (attention runs over those sums, of which the first, that of the query's mean, takes the whole), of what each
    chunk is worth beside the others, or costs, added up over the chunks, and of late interaction's score, by a factor
    that is learned as well: so a head begins with that order of combinations and learns what to say against it.
    """

    def __init__(self, shape: HeadShape, dropout: float = 0.0) -> None:
        """Random weights; `dropout` is for training."""
        super().__init__()
        self.shape = shape
        self.project = nn.Linear(shape.dim, shape.projected, bias=False)
        nn.init.normal_(self.project.weight)  # of unit vectors: products keep their cosine's size
        self.join = nn.Linear(3 * shape.projected + 1, shape.width)
        self.beside = nn.Linear(2, shape.width)
        self.place = nn.Embedding(1 + shape.places, shape.width)
        self.among_chunks = _Attention(shape, dropout)
        self.among_tokens = _Attention(shape, dropout)
        self.over_tokens = _Attention(shape, dropout)
        self.norm = nn.LayerNorm(shape.width)
        self.logit = nn.Linear(shape.width, 1)
        self.nearness = nn.Parameter(torch.tensor(NEARNESS))
        self.brought = nn.Sequential(nn.LayerNorm(shape.width), nn.Linear(shape.width, shape.width), nn.GELU())
        self.worth = nn.Sequential(
            nn.LayerNorm(shape.width),
            nn.Linear(shape.width, shape.hidden),
            nn.GELU(),
            _Dropout(dropout),
            nn.Linear(shape.hidden, 1),
        )

    def rows(self, matches: TokenMatches) -> Tensor:
        """[1 + k, t, row]: what is read of no chunk, and of each of k, beside each of the query's t tokens."""
        query, nearest, cosines = map(torch.from_numpy, (matches.query, matches.nearest, matches.cosines))
        asked = self.project(query)
        found = functional.pad(self.project(nearest), (0, 0, 0, 0, 1, 0))
        cosines = functional.pad(cosines, (0, 0, 1, 0))[..., None]
        joined = self.join(torch.cat([found, asked.expand_as(found), found * asked, cosines], dim=-1))
        return torch.cat([joined, functional.normalize(found, dim=-1), cosines], dim=-1)

    def forward(self, rows: Tensor, read: Tensor | None = None) -> Tensor:
        """Logits [n] of n combinations of one length.

        Args:
            rows: [n, 1 + chunks, t, row]; the row of no chunk first.
            read: [n, t] true where a token is and no padding; None where all are.
        """
        count, places, tokens, _ = rows.shape
        width = self.shape.width
        numbers = torch.arange(places).clamp(max=self.shape.places)
        learned, vectors, cosines = rows.transpose(1, 2).split([width, self.shape.projected, 1], dim=-1)
        placed = learned + self.place(numbers) + self.beside(_rivals(vectors, cosines))
        chunks = self.among_chunks(placed.flatten(0, 1))
        of_tokens = chunks[:, 0].view(count, tokens, width)
        whole = self.over_tokens(self.among_tokens(of_tokens, read), read, first=True)[:, 0]
        brought = self.brought(chunks[:, 1:]).view(count, tokens, places - 1, width)
        if read is not None:
            brought = brought * read[:, :, None, None]
        tokens_read = tokens if read is None else read.sum(1)[:, None, None]
        worth = self.worth(brought.sum(1) / tokens_read)
        logits: Tensor = self.logit(self.norm(whole))[:, 0] + worth.sum((1, 2))
        return logits + self.nearness * _nearest(cosines[..., 0], read)


def _nearest(cosines: Tensor, read: Tensor | None) -> Tensor:
    """[n] the mean, over the query's word pieces, of the cosine with the nearest of all chunks: late interaction.

    Args:
        cosines: [n, t, places] of token and chunk, 0 of no chunk; those of the query's mean, token 0, are left out.
        read: as in `SetHead.forward`.
    """
    nearest = cosines[:, 1:].amax(dim=-1)
    if read is None:
        return nearest.sum(1) / max(1, nearest.shape[1])
    return (nearest * read[:, 1:]).sum(1) / read[:, 1:].sum(1).clamp(min=1)


def _rivals(vectors: Tensor, cosines: Tensor) -> Tensor:
    """[..., places, 2] for each place: how like it the likest other chunk is, how near to the token the nearest.

    Args:
        vectors: [..., places, projected] at unit length; that of no chunk first, which is nobody's rival.
        cosines: [..., places, 1] with the query's token.
    """
    places = vectors.shape[-2]
    others = ~torch.eye(places, dtype=torch.bool)
    others[:, 0] = False
    alike = (vectors @ vectors.transpose(-1, -2)).masked_fill(~others, -1.0).amax(dim=-1)
    nearest = cosines.transpose(-1, -2).expand_as(cosines @ cosines.transpose(-1, -2))
    return torch.stack([alike, nearest.masked_fill(~others, -1.0).amax(dim=-1)], dim=-1)


class _Dropout(nn.Module):
    """Dropout whose random bits come from numpy: torch draws them so slowly that they were half of a training step."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.dropped = round(256 * share)  # of 256 values of a byte

    def forward(self, values: Tensor) -> Tensor:
        """Some values 0 and the others larger, where in training; torch's seed decides which."""
        if not self.training or not self.dropped:
            return values
        drawn = np.random.Generator(np.random.SFC64(int(torch.randint(2**62, ()))))
        kept = torch.from_numpy(drawn.integers(0, 256, values.shape, dtype=np.uint8) >= self.dropped)
        return values * kept * (256 / (256 - self.dropped))


class _Attention(nn.Module):
    """Attention over a short sequence and a feed-forward part, each with its norm before it and its input added."""

    def __init__(self, shape: HeadShape, dropout: float) -> None:
        super().__init__()
        width = shape.width
        self.heads = shape.heads
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.drop = _Dropout(dropout)
        self.feed = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, shape.hidden),
            nn.GELU(),
            _Dropout(dropout),
            nn.Linear(shape.hidden, width),
        )

    def forward(self, sequence: Tensor, mask: Tensor | None = None, *, first: bool = False) -> Tensor:
        """[n, length, width], or [n, 1, width] if only the first position asks; `mask` [n, length] is what counts."""
        normed = self.norm(sequence)
        query = self._split(self.query(normed[:, :1] if first else normed))
        key, value = (self._split(half) for half in self.key_value(normed).chunk(2, dim=-1))
        mixed = _mixed(query, key, value, mask).transpose(1, 2).flatten(2)
        summed = (sequence[:, :1] if first else sequence) + self.drop(self.out(mixed))
        fed: Tensor = summed + self.drop(self.feed(summed))
        return fed

    def _split(self, sequence: Tensor) -> Tensor:
        """[n, heads, length, width / heads]."""
        return sequence.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def _mixed(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """What the heads read, of `query`'s shape, [n, heads, asking, part]; the others are [n, heads, asked, part]."""
    few = query.shape[2] * key.shape[2] <= FEW
    # Products of small matrices are called one by one: thousands of a few numbers each take half the time written out.
    weights = (query[:, :, :, None] * key[:, :, None]).sum(-1) if few else query @ key.transpose(-1, -2)
    weights = weights / math.sqrt(key.shape[-1])
    if mask is not None:
        weights = weights.masked_fill(~mask[:, None, None, :], -math.inf)
    weights = weights.softmax(dim=-1)
    mixed: Tensor = (weights[..., None] * value[:, :, None]).sum(3) if few else weights @ value
    return mixed


def save_head(head: SetHead, folder: Path, embedder: str) -> None:
    """Write a head's weights, shape and embedder into an existing folder, at once: no reader sees half of them."""
    scratch = folder / (WEIGHTS + ".partial")
    told = {"shape": json.dumps(dataclasses.asdict(head.shape)), "embedder": embedder}
    save_file({name: tensor.contiguous() for name, tensor in head.state_dict().items()}, scratch, metadata=told)
    scratch.chmod(0o644)  # safetensors writes for the owner alone; an installed package is read by others
    scratch.replace(folder / WEIGHTS)


def load_head(folder: Path, embedder: str) -> SetHead:
    """A head ready to score, over the vectors of `embedder`, told by its revision.

    Raises:
        MissingModelError: the folder holds no weights.
        DataError: they are damaged, or were trained over another embedder's vectors, which would mean nothing to them.
    """
    path = folder / WEIGHTS
    if not path.is_file():
        raise MissingModelError(
            f"there are no weights of a set head in {folder}: "
            "train some with `python -m jobs.train_combination_reranker`."
        )
    try:
        with safe_open(str(path), framework="pt") as file:
            told = file.metadata() or {}
            head = SetHead(HeadShape(**json.loads(told["shape"])))
            head.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118 (no mapping)
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError) as error:
        raise DataError(f"{path} holds no set head that can be read: {str(error).splitlines()[0][:200]}.") from error
    if told.get("embedder") != embedder:
        raise DataError(f"{path} was trained over the vectors of {told.get('embedder')}, not of {embedder}.")
    return head.eval().requires_grad_(False)
