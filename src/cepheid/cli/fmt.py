"""`cepheid fmt FILE...`: writes .chi files in the one form."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cepheid.cli.queries import misplaced
from cepheid.language.errors import QUERY_FILE, Diagnostic, Rejected, Source
from cepheid.language.formatter import format_query
from cepheid.model.names import near_file


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a file is not in the form.")
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], check: bool) -> None:
    """Write the queries in FILES in the one form: a clause a line, comments kept. `-` is standard input to output.

    \b
    Examples:
      cepheid fmt queries/*.chi
      cepheid fmt --check queries/*.chi
    """
    faults: list[Diagnostic] = []
    changed = 0
    for file in files:
        try:
            text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
            formed = format_query(Source(file, text))
        except Rejected as rejected:
            faults += misplaced(file) or rejected.diagnostics
            continue
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            hint = near_file(Path(file), [".chi"], QUERY_FILE)
            faults.append(Diagnostic("error", "unreadable", f"{file}: {reason}", None, hint))
            continue
        if file == "-" and not check:
            click.echo(formed, nl=False)
        elif formed != text:
            changed += 1
            click.echo(f"{'would change' if check else 'changed'} {file}")
            if not check:
                Path(file).write_text(formed, encoding="utf-8")
    if faults:
        raise Rejected(faults)
    ctx.exit(1 if check and changed else 0)
