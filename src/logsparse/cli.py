"""The command `logsparse`: arguments in, tables and files out. Commands are files of `commands`, or entry points."""

from __future__ import annotations

import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from itertools import pairwise
from typing import Annotated

import typer

from logsparse.commands.attend import attend
from logsparse.commands.backtest import backtest
from logsparse.commands.check import check
from logsparse.commands.explain import explain
from logsparse.commands.fit import fit
from logsparse.commands.pattern import pattern
from logsparse.commands.predict import predict
from logsparse.commands.report import report
from logsparse.commands.score import score
from logsparse.commands.serve import serve
from logsparse.commands.shard import shard
from logsparse.errors import ConfigError, LogsparseError, escaped

# Exit code after Ctrl-C, as shells report it.
STOPPED = 130

EXAMPLES: dict[Callable[..., None], str] = {
    check: "logsparse check sales.csv",
    fit: "logsparse fit sales.csv --horizon 28 -o model",
    predict: "logsparse predict model -o forecast.csv",
    backtest: "logsparse backtest model newer.csv --windows 4 -o results.parquet",
    score: "logsparse score results.parquet --by unique_id",
    report: "logsparse report results.parquet --model model -o report.html",
    serve: "logsparse serve model --port 8000",
    explain: "logsparse explain model sales.csv --draw importance.svg",
    attend: "logsparse attend model --series store_12 -o attention.svg",
    shard: "logsparse shard sales.parquet -o parts --parts 16",
    pattern: "logsparse pattern logsparse --length 96 --draw pattern.svg",
}
"""The commands in the order of the help, and an example of each."""

# Arguments of the library that are options of a command, with a value: `freq='15min'`, `quantiles=[0.1, 0.9]`, `freq=`.
_OPTIONS = (
    *("id_col", "time_col", "target_col", "freq", "tz", "time_format", "dayfirst"),
    *("past_covariates", "covariates", "static"),
    *("horizon", "context", "quantiles", "samples", "method", "until", "future", "on_bad", "minutes", "steps", "seed"),
    *("windows", "step", "refit", "season", "length", "parts", "jobs", "host", "port", "workers", "token_file"),
    *("max_body", "max_series", "timeout", "actuals"),
)
_ARGUMENT = re.compile(rf"\b({'|'.join(_OPTIONS)})=('[^']*'|\[[^]]*\]|True|False|frame\b|[0-9.]*[0-9])?")
# The same, and thresholds of check, where a rule begins with the name; `on_bad` is no word of its own anywhere.
_NAMED = re.compile(r"^(?:tz|time_format|now|stale|flat|gaps|outlier|level)(?= must )|\bon_bad\b(?!=)")
# What is left of a call then, such as fit(frame, --covariates A,B).
_CALL = re.compile(r"\b(fit|predict|forecast|backtest)\((?:frame, )?(--[^)]*)\)")

# Without markup, since help texts show some defaults in brackets.
app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
for command, example in EXAMPLES.items():
    app.command(epilog=f"Example: {example}")(command)
# Entry points: the commands of the paper, and those of other packages.
for entry in sorted(entry_points(group="logsparse.commands")):
    loaded = entry.load()
    if isinstance(loaded, typer.Typer):
        app.add_typer(loaded, name=entry.name)
    else:
        app.command(entry.name)(loaded)


def _version(requested: bool) -> None:
    if requested:
        from logsparse import __version__

        typer.echo(f"logsparse {__version__}")
        raise typer.Exit


@app.callback()
def _logsparse(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Probabilistic forecasts of many related time series."""


def main() -> None:
    """Run the command; an error of the user is one line and exit code 2, without a traceback."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        # SIGTERM acts like Ctrl-C, also before training starts.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _check_arguments(sys.argv[1:])
        status = app(_with_values(sys.argv[1:]), prog_name="logsparse", standalone_mode=False)
    except LogsparseError as error:
        typer.echo(f"logsparse: {in_options(str(error))}", err=True)
        sys.exit(2)
    except typer.TyperException as error:
        if message := error.format_message().strip():
            # Without any argument, the message is the help text.
            text = message if message.startswith("Usage: ") else escaped(f"logsparse: {_with_hint(error)}")
            typer.echo(text, err=True)
        sys.exit(2)
    except OSError as error:
        typer.echo(escaped(f"logsparse: {error}"), err=True)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        status = STOPPED
    if status == STOPPED:
        typer.echo("logsparse: stopped.", err=True)
    sys.exit(status or 0)


def in_options(text: str) -> str:
    """Return an error with its hint in the words of the command: `--id-col` for `id_col=`, `--freq 15min`."""
    rule, label, hint = text.rpartition(" Hint: ")
    rule, hint = _NAMED.sub(_named, rule), _NAMED.sub(_named, hint)
    called = _CALL.sub(lambda call: f"{call[1].replace('forecast', 'predict')} {call[2]}", _ARGUMENT.sub(_option, hint))
    return rule + label + called


def _named(argument: re.Match[str]) -> str:
    name = argument[1] if argument.lastindex else argument[0]
    return f"--{name.replace('_', '-')}"


def _option(argument: re.Match[str]) -> str:
    name, value = _named(argument), argument[2] or ""
    if value == "False":
        return {"--dayfirst": "--monthfirst"}.get(name, f"no {name}")
    plain = {"True": "", "frame": "FILE", "[...]": "A,B"}.get(
        value, value.strip("'[]").replace("', '", ",").replace(", ", ",")
    )
    return f"{name} {shlex.quote(plain) if ' ' in plain else plain}".rstrip()


def _check_arguments(arguments: Sequence[str]) -> None:
    """Refuse an empty argument: it is most likely an unset shell variable, and as a path it is the current folder."""
    if "" in arguments:
        raise ConfigError(
            "No argument of a command may be empty.",
            got=f"'' as argument {arguments.index('') + 1}",
            hint="check that the shell variables of the command are set.",
        )


def _with_values(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with an empty value after `--ray` where it has none, as typer has no optional values."""
    pairs = pairwise([*arguments, "-"])
    return ["--ray=" if word == "--ray" and after.startswith("-") else word for word, after in pairs]


def _with_hint(error: typer.TyperException) -> str:
    """Return the message in the form of our own errors, with the nearest option or command as a hint."""
    if near := getattr(error, "possibilities", None):
        return f"{error.message}. Hint: did you mean '{near[0]}'?"
    rule, guessed, near = error.format_message().rstrip(".").partition(" Did you mean ")
    context = getattr(error, "ctx", None)
    hint = f"did you mean {near}" if guessed else f"see `{context.command_path if context else 'logsparse'} --help`."
    return f"{rule.rstrip('.')}. Hint: {hint}"
