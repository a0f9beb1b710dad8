"""The file of a query that a command is given: read, or what was wrong about naming it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cepheid.language import syntax
from cepheid.language.errors import QUERY_FILE, Diagnostic, Rejected, Source
from cepheid.language.parser import examine
from cepheid.model.names import near_file

#: What a file that ends so is, and the option that it belongs to.
_OTHERS: Final = {
    **dict.fromkeys((".yaml", ".yml"), ("an application", "--app")),
    **dict.fromkeys((".jsonl", ".ndjson", ".json", ".csv"), ("a file of events", "--events")),
    **dict.fromkeys((".ttl", ".nt", ".rdf", ".jsonld"), ("a file of knowledge", "--knowledge")),
}


def read_query(path: str) -> syntax.Query:
    """The query in a file. Rejected if there is none, with the file that may have been meant."""
    tree, problems = examine(_source(path))
    if tree is None:
        raise Rejected(misplaced(path) or problems)
    return tree


def _source(path: str) -> Source:
    try:
        return Source(path, Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        hint = near_file(Path(path), [".chi"], QUERY_FILE) if isinstance(error, FileNotFoundError) else QUERY_FILE
        raise Rejected([Diagnostic("error", "unreadable", f"{path}: {error.strerror}", None, hint)]) from None
    except UnicodeDecodeError:
        raise Rejected([Diagnostic("error", "unreadable", f"{path}: not UTF-8 text", None, QUERY_FILE)]) from None


def misplaced(path: str) -> list[Diagnostic]:
    """Of a file that holds no query: that it is something else by its name, which says more than a fault a line."""
    what, option = _OTHERS.get(Path(path).suffix.lower(), (None, None))
    if what is None:
        return []
    hint = f"a query has a file of its own, such as rising.chi; `cepheid match` takes this one as {option} {path}"
    return [Diagnostic("error", "no-query", f"{path}: this looks like {what}, and a query is wanted", None, hint)]
