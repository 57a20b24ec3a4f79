"""HTML pages from the templates beside this file: every value is escaped, and a name that is missing is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from corag_ray.reports.table import decimal, interval_text


def rendered(template: str, **values: Any) -> str:
    """A template with its values; numbers in it are written by the filters `decimal` and `interval`."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"decimal": decimal, "interval": interval_text}
    return environment.get_template(template).render(**values)
