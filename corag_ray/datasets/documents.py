"""A folder of Markdown, HTML, PDF and plain text files: each file one document."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from corag_ray.datasets.assemble import Dataset, assemble
from corag_ray.datasets.folder import read_queries
from corag_ray.datasets.records import Record
from corag_ray.errors import DataError, MissingModelError

_log = logging.getLogger(__name__)
BLOCKS = ("h1", "h2", "h3", "h4", "h5", "h6", "p", "li", "tr", "pre", "blockquote", "dt", "dd", "figcaption")
LEFT_OUT = ("script", "style", "nav", "noscript", "template", "svg")


def document_files(folder: Path) -> list[Path]:
    """The files of known kinds at any depth, by name; hidden ones are left out."""
    found = (path for path in folder.rglob("*") if path.suffix.lower() in READERS and path.is_file())
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def load_documents(folder: Path, questions: bool) -> Dataset:
    """A document a file, its id the path within the folder; questions come from a `queries` file beside them.

    Files without any text (empty, or scanned pages) are left out and named in a warning.
    """
    queries = read_queries(folder) if questions else None
    if questions and queries is None:
        raise DataError(f"{folder} holds documents and no queries.jsonl: only `ask` and `index` can use it.")
    return assemble(folder.resolve().name, str(folder), _passages(folder), queries)


def _passages(folder: Path) -> Iterator[Record]:
    blank = []
    for path in document_files(folder):
        doc_id = path.relative_to(folder).as_posix()
        text = READERS[path.suffix.lower()](path)
        if text.strip():
            yield str(path), {"passage_id": doc_id, "doc_id": doc_id, "text": text}
        else:
            blank.append(doc_id)
    if blank:
        _log.warning("%d files hold no text and are left out: %s", len(blank), ", ".join(blank[:20]))


def _plain(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 at byte {error.start}; convert it.") from error


def _markdown(path: Path) -> str:
    from markdown_it import MarkdownIt

    return _text_of_html(MarkdownIt("commonmark").enable("table").render(_plain(path)))


def _html(path: Path) -> str:
    return _text_of_html(_plain(path))


def _text_of_html(markup: str) -> str:
    """The text of headings, paragraphs, list entries and table rows, a line each, in their order."""
    soup = _library("bs4").BeautifulSoup(markup, "html.parser")
    for unwanted in soup(LEFT_OUT):
        unwanted.decompose()
    title = soup.title.get_text(" ", strip=True) if soup.title else ""
    if soup.title:
        soup.title.decompose()
    for block in soup(BLOCKS):
        block.insert_before("\n")
        block.insert_after("\n")
    for cell in soup(("td", "th")):
        cell.insert_after(" ")
    lines = (" ".join(line.split()) for line in soup.get_text().splitlines())
    body = [line for line in lines if line]
    return "\n".join([title, *body] if title and title not in body[:1] else body)


def _pdf(path: Path) -> str:
    pypdf = _library("pypdf")
    try:
        reader = pypdf.PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(""):
            raise DataError(f"{path}: the file is encrypted; save it without a password.")
        return "\n".join(page.extract_text() for page in reader.pages)
    except DataError:
        raise
    except Exception as error:  # a damaged file makes pypdf raise nearly anything
        reason = f"{type(error).__name__}: {str(error)[:100]}"
        raise DataError(f"{path}: not a PDF file that can be read ({reason}).") from error


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingModelError(f"reading this format needs {name}: pip install 'corag_ray[data]'.") from error


READERS: Mapping[str, Callable[[Path], str]] = {
    ".txt": _plain,
    ".md": _markdown,
    ".markdown": _markdown,
    ".html": _html,
    ".htm": _html,
    ".pdf": _pdf,
}
"""Kinds of files by the ends of their names."""
