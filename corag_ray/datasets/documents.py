"""A folder of Markdown, HTML, PDF and plain text files: each file one document."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import yaml

from corag_ray.datasets.assemble import Dataset, assemble
from corag_ray.datasets.folder import read_queries
from corag_ray.datasets.records import Record, optional_library
from corag_ray.errors import DataError

_log = logging.getLogger(__name__)
BLOCKS = (
    *("h1", "h2", "h3", "h4", "h5", "h6", "p", "div", "section", "article", "header", "footer", "main", "aside"),
    *("ul", "ol", "li", "dl", "dt", "dd", "table", "caption", "tr", "pre", "blockquote", "figure", "figcaption"),
    *("address", "details", "summary", "form", "fieldset", "legend", "option", "br", "hr"),
)
"""Elements that begin and end a line; within others the text runs on."""
LEFT_OUT = ("script", "style", "nav", "noscript", "template", "svg")
LINE_ENDS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
"""What `str.splitlines` takes for one."""
FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?\n)(?:---|\.\.\.)[ \t]*(?:\n|$)", re.DOTALL)
DEEPEST = 1_000_000
"""Nesting that Markdown may have: the parser drops what lies deeper, so this is beyond what Python's stack takes."""


def document_files(folder: Path) -> list[Path]:
    """The files of known kinds at any depth, by name; hidden ones and linked folders are left out.

    Raises:
        DataError: a folder within cannot be read.
    """
    found: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=_refuse_folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (Path(place, name) for name in names if not name.startswith("."))
        found += [path for path in paths if path.suffix.lower() in READERS]
    return sorted(found)


def _refuse_folder(error: OSError) -> None:
    raise DataError(f"{error.filename}: cannot be read ({error.strerror}).") from error


def load_documents(folder: Path, questions: bool) -> Dataset:
    """A document a file, its id the path within the folder; questions come from a `queries` file beside them.

    Files without any text (empty, or scanned pages), encrypted ones, pipes and devices are left out and named in a
    warning.

    Raises:
        DataError: a file cannot be read, none holds text, or questions are wanted and there is no file of them.
    """
    queries = read_queries(folder) if questions else None
    if questions and queries is None:
        raise DataError(f"{folder} holds documents and no queries.jsonl: only `ask` and `index` can use it.")
    return assemble(folder.resolve().name, str(folder), _passages(folder), queries)


def _passages(folder: Path) -> Iterator[Record]:
    left_out: list[str] = []
    files = document_files(folder)
    for path in files:
        doc_id = path.relative_to(folder).as_posix()
        if os.path.exists(path) and not os.path.isfile(path):  # reading a pipe waits until something writes to it
            left_out.append(f"{doc_id} (no regular file)")
            continue
        text = READERS[path.suffix.lower()](path)
        if text is None:
            left_out.append(f"{doc_id} (encrypted)")
        elif not text.strip():
            left_out.append(f"{doc_id} (no text)")
        else:
            yield str(path), {"passage_id": doc_id, "doc_id": doc_id, "text": text}
    if left_out and len(left_out) == len(files):
        raise DataError(
            f"{folder}: none of its {len(files)} documents has text that can be read: {', '.join(left_out)}."
        )
    if left_out:
        _log.warning("%d of %d files are left out: %s", len(left_out), len(files), ", ".join(left_out))


def _plain(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 at byte {error.start}; convert it.") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error


def _markdown(path: Path) -> str:
    """The text of a Markdown file, without its front matter."""
    parser = optional_library("markdown_it").MarkdownIt("commonmark", {"maxNesting": DEEPEST}).enable("table")
    with _refusing_markup(path, nested="lists or quotes"):
        return _text_of_html(parser.render(_without_front_matter(_plain(path))))


def _without_front_matter(text: str) -> str:
    """Markdown without the settings in YAML that it may begin with; words between two rules are none and stay."""
    found = FRONT_MATTER.match(text)
    try:
        is_settings = found is not None and isinstance(yaml.compose(found[1]), yaml.MappingNode)
    except yaml.YAMLError:
        is_settings = False
    return text[found.end() :] if found and is_settings else text


def _html(path: Path) -> str:
    with _refusing_markup(path, nested="elements"):
        return _text_of_html(_plain(path))


@contextmanager
def _refusing_markup(path: Path, nested: str) -> Iterator[None]:
    """What the parsers of markup do not take becomes one sentence; `nested` is what may lie too deep in the file."""
    rejected = optional_library("bs4").ParserRejectedMarkup
    try:
        yield
    except RecursionError as error:
        raise DataError(f"{path}: its {nested} are nested too deep to be read.") from error
    except (rejected, ValueError) as error:  # a declaration that is none; a character's number of thousands of digits
        reason = str(error).rpartition("\n")[2].partition(";")[0].strip()  # the rest is advice for programmers
        raise DataError(f"{path}: its markup cannot be read ({reason}).") from error


def _text_of_html(markup: str) -> str:
    """The text of headings, paragraphs, list entries and table rows, a line each, in their order.

    Line ends in the markup are blanks, as a browser shows them, so that words may be quoted across them; those of
    `<pre>` and `<br>` are kept.
    """
    soup = optional_library("bs4").BeautifulSoup(markup, "html.parser")
    for unwanted in soup(LEFT_OUT):
        unwanted.decompose()
    title = " ".join(soup.title.get_text().split()) if soup.title else ""
    if soup.title:
        soup.title.decompose()
    for text in soup.find_all(string=LINE_ENDS):
        if not text.find_parent("pre"):
            text.replace_with(type(text)(LINE_ENDS.sub(" ", text)))
    for block in soup(BLOCKS):
        block.insert_before("\n")
        block.insert_after("\n")
    for cell in soup(("td", "th")):
        cell.insert_after(" ")
    lines = (" ".join(line.split()) for line in soup.get_text().splitlines())
    body = [line for line in lines if line]
    return "\n".join([title, *body] if title and title not in body[:1] else body)


def _pdf(path: Path) -> str | None:
    """The pages' text; None when it takes a password."""
    pypdf = optional_library("pypdf")
    try:
        reader = pypdf.PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(""):
            return None
        pages = [page.extract_text() for page in reader.pages]
    except Exception as error:  # a damaged file makes pypdf raise nearly anything
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
        raise DataError(f"{path}: not a PDF file that can be read ({reason}).") from error
    blank = [str(number) for number, text in enumerate(pages, start=1) if not text.strip()]
    if 0 < len(blank) < len(pages):
        _log.warning("%s: %d of %d pages hold no text: %s", path, len(blank), len(pages), ", ".join(blank))
    return "\n".join(pages)


READERS: Mapping[str, Callable[[Path], str | None]] = {
    ".txt": _plain,
    ".md": _markdown,
    ".markdown": _markdown,
    ".html": _html,
    ".htm": _html,
    ".pdf": _pdf,
}
"""Kinds of files by the ends of their names; a reader gives None for a file that is encrypted."""
