"""From a name or a path to a data set: which format it is, is told by its files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from corag_ray.datasets.assemble import Dataset
from corag_ray.datasets.documents import document_files, load_documents
from corag_ray.datasets.folder import is_data_folder, load_data_folder
from corag_ray.datasets.libraries import load_hub, load_ir_datasets
from corag_ray.datasets.msmarco import (
    is_passage_ranking,
    is_question_answering,
    load_passage_ranking,
    load_question_answering,
)
from corag_ray.datasets.union import union
from corag_ray.datasets.wikipassageqa import is_wikipassageqa, load_wikipassageqa
from corag_ray.errors import ConfigError, DataError, unknown_name

SAMPLE = "sample"
"""Name of the corpus that comes with the package."""
DATA_VARIABLE = "CORAG_DATA"

LIBRARIES: dict[str, Callable[[str, bool], Dataset]] = {"ir_datasets": load_ir_datasets, "hub": load_hub}
"""Loaders by what stands before the colon of a name."""
LAYOUTS: dict[str, tuple[Callable[[Path], bool], Callable[[Path, bool], Dataset]]] = {
    "corpus.jsonl, .jsonl.gz or .parquet": (is_data_folder, load_data_folder),
    "document_passages.json (WikiPassageQA)": (is_wikipassageqa, load_wikipassageqa),
    "collection.tsv (MS MARCO passage ranking)": (is_passage_ranking, load_passage_ranking),
    "a file *_v1.1.json or *_v2.1.json (MS MARCO QA)": (is_question_answering, load_question_answering),
}
"""Layouts of folders: by what it must hold, how that is seen, and its loader."""
DOCUMENTS = "documents as .md, .html, .pdf or .txt"
"""The layout of a folder that has none of `LAYOUTS`; beside their files, such documents are notes of the data set."""


def load_dataset(name_or_path: str, *, questions: bool = True) -> Dataset:
    """The sample, a folder by path or by name under `$CORAG_DATA` (default `data/`), or a library's set.

    Args:
        name_or_path: which data; `ir_datasets:ID` and `hub:NAME[:SPLIT]` name sets of these libraries; several
            names, parted by commas, are one corpus.
        questions: whether they are wanted; without, a folder may lack them.

    Raises:
        ConfigError: no such name (the message suggests one), one of several is empty, or a folder's is not UTF-8.
        DataError: a file is missing, empty or broken (file and line are named), or two layouts stand in one folder.
    """
    parts = parts_of(name_or_path)
    if len(parts) > 1:
        return union([load_dataset(part, questions=questions) for part in parts])
    library, colon, name = name_or_path.partition(":")
    if colon and library in LIBRARIES:
        return LIBRARIES[library](name, questions)
    folder = _find_folder(name_or_path)
    fitting = [layout for layout, (fits, _) in LAYOUTS.items() if fits(folder)]
    if len(fitting) == 1:
        return LAYOUTS[fitting[0]][1](folder, questions)
    if not fitting and document_files(folder):
        return load_documents(folder, questions)
    found = f"holds more than one layout ({'; '.join(fitting)})" if fitting else "has no layout that is known"
    raise DataError(f"{folder} {found}; a folder must hold one of: {'; '.join([*LAYOUTS, DOCUMENTS])}.")


def source_of(name_or_path: str) -> str:
    """Where a data set lies: a folder by its resolved path, a library's set and the sample by name."""
    parts = parts_of(name_or_path)
    if len(parts) > 1:
        return ",".join(map(source_of, parts))
    is_named = name_or_path == SAMPLE or name_or_path.partition(":")[0] in LIBRARIES
    return name_or_path if is_named else str(_find_folder(name_or_path).resolve())


def parts_of(names: str) -> list[str]:
    """The names that commas part; a folder that is there is one name, whatever commas its own has.

    Raises:
        ConfigError: one is empty, which as a path would be the folder that the program runs in.
    """
    library, _, name = names.partition(":")
    if os.path.exists(name if library in LIBRARIES else names):
        return [names]
    parts = [part.strip() for part in names.split(",")]
    if not all(parts):
        raise ConfigError(f"'{names}' leaves a name of a data set empty: expected names parted by single commas.")
    return parts


def _find_folder(name_or_path: str) -> Path:
    if name_or_path == SAMPLE:
        return Path(__file__).parent / SAMPLE
    root = Path(os.environ.get(DATA_VARIABLE, "data"))
    for path in (Path(name_or_path), root / name_or_path):
        if os.path.isdir(path):  # unlike Path.is_dir, False for a name that no file system takes
            _check_utf8(name_or_path, path.resolve().name)
            return path
    known = [p.name for p in root.iterdir() if p.is_dir()] if root.is_dir() else []
    sets = "which {} sets" if DATA_VARIABLE in os.environ else "the default; {} can name another folder"
    where = f"looked in '{root}', {sets.format(DATA_VARIABLE)}"
    raise unknown_name(f"data set ({where})", name_or_path, [SAMPLE, *known])


def _check_utf8(*names: str) -> None:
    """A name becomes part of ids, paths and JSON, which hold characters alone."""
    for name in names:
        if name.encode(errors="ignore").decode() != name:
            raise ConfigError(f"the name {name!r} of a data set is not UTF-8: rename its folder.")
