"""What the scripts here share: records in JSON files, and pages of which a part is generated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stepnet.report.results import write_records

RESULTS = Path(__file__).parent
DOCS = RESULTS.parent / "docs"


def read_content(file: str) -> dict[str, Any]:
    """Return the content of a JSON file in this folder; nothing if there is no such file."""
    path = RESULTS / file
    content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return content


def write_content(file: str, name: str, records: list[dict[str, Any]], **others: Any) -> None:
    """Write records, one to a line, after the other entries of a JSON file in this folder."""
    write_records(RESULTS / file, records, name, **others)


def with_part(text: str, begin: str, part: str, end: str = "") -> str:
    """Return a page with the part between the lines `begin` and `end` replaced; without `end`, all after `begin`."""
    before, _, rest = text.partition(begin)
    after = f"\n{end}{rest.partition(end)[2]}" if end else ""
    return f"{before}{begin}\n\n{part}\n{after}"
