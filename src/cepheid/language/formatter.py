"""The one way to write a query: a clause a line, in the order its author chose, comments where they were."""

from __future__ import annotations

from cepheid.language.errors import Diagnostic, Rejected, Source
from cepheid.language.lexer import Text
from cepheid.language.parser import Clause, clauses
from cepheid.language.printer import print_clause


def format_query(source: Source) -> str:
    """The text in its one form; Rejected if its syntax is wrong. Formatting twice changes nothing."""
    problems: list[Diagnostic] = []
    text = Text.of(source)
    found = list(clauses(text, problems))
    if problems:
        raise Rejected(problems)
    above: list[list[str]] = [[] for _ in range(len(found) + 1)]
    beside: list[list[str]] = [[] for _ in found]
    for start, comment in text.comments:
        i = _next_clause(found, start)
        if i > 0 and "\n" not in source.text[max(_end_before(found[i - 1], start), 0) : start]:
            beside[i - 1].append(comment)
        else:
            above[i].append(comment)
    lines: list[str] = []
    for clause, comments, notes in zip(found, above, beside, strict=False):
        lines += [comment.rstrip() for comment in comments]
        note = "  " + notes[-1].rstrip() if notes else ""
        lines += [earlier.rstrip() for earlier in notes[:-1]]
        lines.append(print_clause(clause.kind, clause.parsed) + note)
    lines += [comment.rstrip() for comment in above[-1]]
    return "\n".join(lines) + "\n" if lines else ""


def _next_clause(found: list[Clause], start: int) -> int:
    """How many clauses begin before an offset."""
    return sum(clause.start < start for clause in found)


def _end_before(clause: Clause, start: int) -> int:
    """Where the text before a comment ends: inside a clause that is where the comment stands."""
    return clause.end if clause.end <= start else start
