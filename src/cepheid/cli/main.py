"""The `cepheid` command: finds the command's file, and turns a user's mistake into a message and exit code 2."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, Final, NoReturn

import click

import cepheid
from cepheid.language.errors import Rejected

#: The commands in the order of the help, with their one-line help: a command's file is imported only when it is called.
COMMANDS: Final = {
    "demo": "The campus, end to end; ends by itself with a summary.",
    "run": "Run an application: intake, real-time service and Spark pipeline.",
    "check": "Say everything that is wrong with an application.",
    "match": "Print what a query finds in files of events.",
    "query": "Print what a query finds in what an application has archived.",
    "service": "Run the intake and the real-time engine of an application.",
    "pipeline": "Run what of an application is placed on Spark.",
    "top": "Show what a running service does, anew every second.",
    "archive": "Look at an archive, compact it, and take events out of it.",
    "explain": "Show what the planner made of an application, and why.",
    "annotate": "Propose what the attributes of events could mean.",
    "knowledge": "Look at an application's knowledge, and change it while it is in use.",
    "fmt": "Write queries in the one form.",
    "doctor": "Say what this machine can and cannot do, and how to mend it.",
    "bench": "Run an experiment.",
}


class _ReaderGone(Exception):
    """Nobody reads our output any more. Click would make exit code 1 of the BrokenPipeError."""


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _ReaderGone from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"cepheid.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from cepheid.model.names import suggestion

            ctx.fail(f"no such command '{name}'; {suggestion(name, COMMANDS) or '`cepheid --help` lists them'}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(cepheid.__version__, prog_name="cepheid")
def cli() -> None:
    """Complex event processing for sensors: what happened, when, and what it means.

    Begin with a query and a file of events, as the README does:

    \b
      cepheid match rising.chi --events readings.jsonl --format table

    The other commands take an application file, plant.yaml, which says what streams and queries there are.
    `cepheid COMMAND --help` says more of each.
    """


def main() -> NoReturn:
    """Run a command. Exit 0: done, or who reads the output has seen enough; 2: a mistake in what was given;
    130: interrupted; 1: anything else."""
    try:
        sys.exit(cli.main(standalone_mode=False) or 0)
    except Rejected as rejected:
        color = sys.stderr.isatty()
        for diagnostic in rejected.diagnostics:
            click.echo(diagnostic.render(color), err=True)
        sys.exit(2)
    except click.ClickException as mistake:
        mistake.show()
        sys.exit(2)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except _ReaderGone:
        # What is still in the buffer would be written at exit, and fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if not _is_for_users(error):
            raise
        click.echo(
            f"{click.style('error:', fg='red', bold=True) if sys.stderr.isatty() else 'error:'} {error}", err=True
        )
        sys.exit(2)


def _is_for_users(error: Exception) -> bool:
    """Whether an error is one of Cepheid's own, whose message says what to do; one of the native core is a bug."""
    module = type(error).__module__
    return module.startswith("cepheid.") and module != "cepheid._native"


if __name__ == "__main__":
    main()
