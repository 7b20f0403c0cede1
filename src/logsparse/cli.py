"""The command `logsparse`: words in, tables and files out. Each command is a file of `commands`, or an entry point."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Annotated

import typer

from logsparse.commands.attend import attend
from logsparse.commands.backtest import backtest
from logsparse.commands.check import check
from logsparse.commands.fit import fit
from logsparse.commands.pattern import pattern
from logsparse.commands.predict import predict
from logsparse.commands.report import report
from logsparse.commands.score import score
from logsparse.errors import ConfigError, LogsparseError, escaped

# What a shell makes of Ctrl-C.
STOPPED = 130

# Without markup: what stands in brackets in a help text is the default where none is named.
app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
for command in (check, fit, predict, backtest, score, report, attend, pattern):
    app.command()(command)
# Commands that this package does not know by name: those of the paper, and those of any other package.
for entry in sorted(entry_points(group="logsparse.commands")):
    found = entry.load()
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=entry.name)
    else:
        app.command(entry.name)(found)


def _version(asked: bool) -> None:
    if asked:
        from logsparse import __version__

        typer.echo(f"logsparse {__version__}")
        raise typer.Exit


@app.callback()
def _logsparse(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Forecast many related series with a long past, with honest uncertainty."""


def main() -> None:
    """A user's mistake is one line and exit code 2, never a traceback."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        # Like Ctrl-C, before a training has begun too.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _check_words(sys.argv[1:])
        status = app(prog_name="logsparse", standalone_mode=False)
    except LogsparseError as error:
        typer.echo(f"logsparse: {error}", err=True)
        sys.exit(2)
    except typer.TyperException as error:
        if message := error.format_message().strip():
            # Words that are missing altogether get the whole help, as it is.
            typer.echo(message if message.startswith("Usage: ") else escaped(f"logsparse: {_told(error)}"), err=True)
        sys.exit(2)
    except OSError as error:
        typer.echo(escaped(f"logsparse: {error}"), err=True)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        status = STOPPED
    if status == STOPPED:
        typer.echo("logsparse: stopped.", err=True)
    sys.exit(status or 0)


def _check_words(words: Sequence[str]) -> None:
    """An empty path would mean the current folder: most likely a shell variable was not set."""
    if "" in words:
        raise ConfigError(
            "No argument of a command may be empty.",
            got=f"'' as argument {words.index('') + 1}",
            hint="check that the variables of the command line are set.",
        )


def _told(error: typer.TyperException) -> str:
    """In the words of our own errors; a mistyped option gets the nearest one."""
    if near := getattr(error, "possibilities", None):
        return f"{error.message}. Hint: did you mean '{near[0]}'?"
    rule, guessed, near = error.format_message().rstrip(".").partition(" Did you mean ")
    context = getattr(error, "ctx", None)
    way = f"did you mean {near}" if guessed else f"see `{context.command_path if context else 'logsparse'} --help`."
    return f"{rule.rstrip('.')}. Hint: {way}"
