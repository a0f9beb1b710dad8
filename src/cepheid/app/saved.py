"""An application as one text, with everything in it that was read from files: so that it can be had again as it was.

A running service goes by what was last applied, whatever has become of the files since.
"""

from __future__ import annotations

import json
from pathlib import Path

from cepheid.app.application import Application, assemble
from cepheid.app.load import read
from cepheid.app.schema import ApplicationSection
from cepheid.app.yaml import Plain, Text
from cepheid.language.errors import Rejected


def save(path: str | Path) -> tuple[Application, str]:
    """The application in a file, and its text. Raises Rejected, with every diagnostic, if anything in it is wrong."""
    application, values = read(path)
    queries = dict(values.get("queries") or {})  # type: ignore[arg-type]
    for name, query in application.sections.queries.items():
        entry = queries[name]
        if query.file is not None and isinstance(entry, dict):
            content = Path(query.file).read_text(encoding="utf-8-sig")
            queries[name] = {key: value for key, value in entry.items() if key != "file"} | {"text": content}
    kept = {key: value for key, value in values.items() if key != "include"}
    if queries:
        kept["queries"] = queries
    folder = application.folder
    return application, json.dumps({"folder": str(folder), "values": _packed(kept, folder)})


def restore(text: str) -> Application:
    """The application of a text that `save` gave; paths are relative to the working folder that it had then."""
    content = json.loads(text)
    folder = Path(content["folder"])
    sections = ApplicationSection.model_validate(_unpacked(content["values"], folder))
    application, diagnostics = assemble(sections, folder, lambda problem: None)
    if any(d.severity == "error" for d in diagnostics):
        raise Rejected(diagnostics)
    return application


def _packed(value: Plain, folder: Path) -> object:
    """Text of an included file from elsewhere carries its folder along."""
    if isinstance(value, dict):
        return {"map": {key: _packed(entry, folder) for key, entry in value.items()}}
    if isinstance(value, list):
        return [_packed(entry, folder) for entry in value]
    if isinstance(value, Text) and value.folder != folder:
        return {"text": str(value), "folder": str(value.folder)}
    return value


def _unpacked(value: object, folder: Path) -> Plain:
    if isinstance(value, dict):
        if "map" in value:
            return {key: _unpacked(entry, folder) for key, entry in value["map"].items()}
        return _text(value["text"], Path(value["folder"]))
    if isinstance(value, list):
        return [_unpacked(entry, folder) for entry in value]
    return _text(value, folder) if isinstance(value, str) else value  # type: ignore[return-value]


def _text(value: str, folder: Path) -> Text:
    text = Text(value)
    text.folder = folder
    return text
