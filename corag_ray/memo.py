"""The memo of raw scores: what a reranker once said of a query and a combination is not computed again."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from corag_ray.errors import DataError
from corag_ray.types import Combination

_log = logging.getLogger(__name__)

KEY_BYTES = 16
APPLICATION, FILE_VERSION = 0x434F5241, 1
"""What SQLite notes in the head of a memo's file; the first reads `CORA`."""
KEYS_A_READ = 500
"""SQLite before 3.32 takes at most 999 values in one statement."""
WAIT_S = 30.0
"""For other processes that write to the same file; each holds it for one batch."""


@dataclass(frozen=True, slots=True)
class QueryKeys:
    """Makes the keys of one query's combinations for one reranker.

    `head` is the digest of reranker and query, `chunks` those of the candidates' texts: not of their ids, which stay
    the same where a document's text changes within a span. `ordered` is whether the reranker sees order; where it does
    not, all permutations of a combination have one key.
    """

    head: bytes
    chunks: tuple[bytes, ...]
    ordered: bool

    def of(self, combination: Combination) -> bytes:
        """The key of a combination, `KEY_BYTES` long."""
        chosen = [self.chunks[number] for number in combination]
        return _digest(self.head + b"".join(chosen if self.ordered else sorted(chosen)))


class Memo:
    """Raw scores by key: those used last in memory, up to a number, and all of them in a file where one is named.

    It holds finite numbers alone: a score that could not be computed may be next time. Threads may share it. `lookups`
    counts the keys that were looked up so far, `hits` those that were found.
    """

    def __init__(self, identities: Mapping[str, str], entries: int, path: Path | None = None) -> None:
        """`identities` says by reranker's name what its raw scores depend on; others are not memoised.

        `entries` is how many scores are kept in memory (about 200 bytes each), `path` the file.

        Raises:
            DataError: the file cannot be used.
        """
        self._identities = identities
        self._entries = entries
        self._scores: OrderedDict[bytes, float] = OrderedDict()  # used last stands last
        self._file = None if path is None else ScoreFile(path)
        self._lock = threading.Lock()
        self.lookups = self.hits = 0

    def keys(self, reranker: str, query: str, texts: Sequence[str], ordered: bool) -> QueryKeys | None:
        """The keys of a query with its candidates' texts; None for a reranker that is not memoised."""
        identity = self._identities.get(reranker)
        if identity is None:
            return None
        head = _digest(_digest(_encoded(identity)) + _encoded(query))
        return QueryKeys(head, tuple(_digest(_encoded(text)) for text in texts), ordered)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, float]:
        """The raw scores that are known of these distinct keys."""
        with self._lock:
            found = {key: self._scores[key] for key in keys if key in self._scores}
            for key in found:
                self._scores.move_to_end(key)
            if self._file is not None and len(found) < len(keys):
                with self._or_without_file():
                    from_file = self._file.read([key for key in keys if key not in found])
                    self._keep(from_file)
                    found |= from_file
            self.lookups += len(keys)
            self.hits += len(found)
        return found

    def put(self, scores: Mapping[bytes, float]) -> None:
        """Remember raw scores."""
        finite = {key: raw for key, raw in scores.items() if math.isfinite(raw)}
        if finite:
            with self._lock:
                self._keep(finite)
                if self._file is not None:
                    with self._or_without_file():
                        self._file.write(finite)

    def close(self) -> None:
        """Let the file go; what it holds stays."""
        with self._lock:
            if self._file is not None:
                self._file.close()

    @contextlib.contextmanager
    def _or_without_file(self) -> Iterator[None]:
        """A file that fails once the run is under way is let go: what it saves is time, and the run is worth more."""
        try:
            yield
        except DataError as error:
            _log.warning("%s Going on with the scores in memory alone.", error)
            self._file = None

    def _keep(self, scores: Mapping[bytes, float]) -> None:
        self._scores.update(scores)
        for key in scores:
            self._scores.move_to_end(key)
        while len(self._scores) > self._entries:
            self._scores.popitem(last=False)


class ScoreFile:
    """Raw scores in one SQLite file, which processes of one machine may share (by a write-ahead log: no network disk).

    One thread at a time. Scores are 64-bit floats; of two that were computed for one key the first stays.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, or make it.

        Raises:
            DataError: it cannot be written, is damaged, or is something else.
        """
        self._path = path
        with self._one_sentence():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._sql = sqlite3.connect(path, WAIT_S, isolation_level=None, check_same_thread=False)
        try:
            self._prepare()
        except DataError:
            self._sql.close()
            raise

    def _prepare(self) -> None:
        with self._transaction():  # first of all, whose file it is: another program's is not touched
            [application] = self._sql.execute("PRAGMA application_id").fetchone()
            [version] = self._sql.execute("PRAGMA user_version").fetchone()
            [tables] = self._sql.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if application == version == tables == 0:
                self._sql.execute("CREATE TABLE scores (key BLOB PRIMARY KEY, raw REAL NOT NULL) WITHOUT ROWID")
                self._sql.execute(f"PRAGMA application_id = {APPLICATION}")
                self._sql.execute(f"PRAGMA user_version = {FILE_VERSION}")
            elif (application, version) != (APPLICATION, FILE_VERSION):
                raise DataError(f"memo.path: {self._path} is no memo of version {FILE_VERSION}: name another file.")
        with self._one_sentence():
            self._write_ahead()
            self._sql.execute("PRAGMA synchronous = NORMAL")  # a loss of power takes the last scores, and only those

    def _write_ahead(self) -> None:
        """Readers need not wait for a writer then; SQLite does not wait for its turn to say so, unlike elsewhere."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                self._sql.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def read(self, keys: Sequence[bytes]) -> dict[bytes, float]:
        """The raw scores that the file holds of these keys.

        Raises:
            DataError: the file cannot be read.
        """
        found: dict[bytes, float] = {}
        with self._one_sentence():
            for start in range(0, len(keys), KEYS_A_READ):
                part = keys[start : start + KEYS_A_READ]
                places = ",".join("?" * len(part))
                found.update(self._sql.execute(f"SELECT key, raw FROM scores WHERE key IN ({places})", part))
        # A damaged page can hold anything; what is no score is computed anew.
        return {key: raw for key, raw in found.items() if isinstance(raw, float) and math.isfinite(raw)}

    def write(self, scores: Mapping[bytes, float]) -> None:
        """Add scores, all of them or none.

        Raises:
            DataError: the file cannot be written.
        """
        with self._transaction():
            self._sql.executemany("INSERT OR IGNORE INTO scores VALUES (?, ?)", scores.items())

    def close(self) -> None:
        """Bring what stands in the log into the file, and let it go."""
        self._sql.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._one_sentence():
            self._sql.execute("BEGIN IMMEDIATE")  # one that began by reading could not wait for another's writing
            try:
                yield
                self._sql.execute("COMMIT")
            finally:
                if self._sql.in_transaction:
                    self._sql.execute("ROLLBACK")

    @contextlib.contextmanager
    def _one_sentence(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, sqlite3.Error) as error:  # ValueError: a path that no file can have
            said = getattr(error, "strerror", None) or str(error)
            if self._path.is_dir():
                raise DataError(f"memo.path: {self._path} is a folder: name a file in it.") from error
            raise DataError(
                f"memo.path: {self._path} cannot hold the memo of scores ({said}): name another file, leave the key "
                "out, or, if it is a memo that was damaged, delete it with its -wal and -shm."
            ) from error


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=KEY_BYTES).digest()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # a text may hold half of a character, and keys must tell it apart
