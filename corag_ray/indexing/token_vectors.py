"""How token vectors are stored: as which numbers, up to which size, and the way there and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from corag_ray.errors import ConfigError
from corag_ray.models.protocols import FloatArray

STEPS = 127
"""An int8 component counts 127ths: unit vectors lie within -1..1, and int8 holds -127..127."""


@dataclass(frozen=True, slots=True)
class TokenVectorFormat:
    """The type of the stored numbers, and the megabytes (of 10**6 bytes) above which no token vectors are stored.

    Measured on the sample (627 chunks, 120 questions, late interaction of single chunks): `float16` takes 50.0 MB and
    keeps a score to 0.00003; `int8` takes 25.0 MB and keeps it to 0.006, with the same best chunk for 118 questions
    and 9.87 of the ten best.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    dtype: Literal["float16", "int8"] = "float16"
    up_to_mb: int = 1500

    def __post_init__(self) -> None:
        """Refuse a limit that nothing meets; 0 stores none."""
        if self.up_to_mb < 0:
            raise ConfigError(f"token_vectors.up_to_mb must be at least 0, not {self.up_to_mb}.")

    @property
    def component_bytes(self) -> int:
        """Bytes of one stored number."""
        return np.dtype(self.dtype).itemsize

    def fits(self, tokens: int, dim: int) -> bool:
        """Whether the vectors of so many tokens, `dim` components each, stay within the limit."""
        return tokens * dim * self.component_bytes <= self.up_to_mb * 1_000_000

    def encoded(self, vectors: FloatArray) -> NDArray[Any]:
        """Unit vectors, [tokens, dim], as they are stored."""
        if self.dtype == "int8":
            return np.rint(vectors * STEPS).astype(np.int8)
        return vectors.astype(np.float16)


def decoded(stored: NDArray[Any]) -> FloatArray:
    """Stored vectors as float32; those of int8 are scaled to unit length again, which rounding left."""
    vectors: FloatArray = stored.astype(np.float32)
    if stored.dtype == np.int8:
        vectors /= np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return vectors
