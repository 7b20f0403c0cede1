"""Words of the command line -> a table of what a pattern costs, and a picture of it."""

from __future__ import annotations

import inspect
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from logsparse.attention.pattern import PATTERNS, Pattern
from logsparse.errors import ConfigError

# Longer inputs take more than seconds to count and draw.
LONGEST = 1_000_000

_RULES = {name: rule for name, rule in PATTERNS.items() if rule.options is not None}
_SHORTER = {"sub_length": "--sub"}


def pattern(
    kind: str,
    length: Annotated[int, typer.Option(help="number of cells of the input")],
    dense_rows: Annotated[int, typer.Option(help="first rows that attend to their whole past")] = 0,
    draw: Annotated[Path | None, typer.Option(help="also draw it to this file: .svg, .png or .pdf")] = None,
    **settings: int | None,
) -> None:
    """Show what an attention pattern costs and reaches, and draw it."""
    from logsparse.attention.draw import draw as draw_to
    from logsparse.attention.draw import summary

    if length > LONGEST:
        raise ConfigError(
            f"--length must be at most {LONGEST:,}.", got=f"{length:,}", hint="patterns look alike at any length."
        )
    given = {name: value for name, value in settings.items() if value is not None}
    _check_settings(kind, given, length)
    chosen = Pattern.from_dict({"rule": str(kind), **given, "dense_rows": dense_rows})
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    for row in summary(chosen, length):
        table.add_row(*row)
    console = Console()
    console.print(table)
    if draw is not None:
        console.print(f"drawn: {draw_to(chosen, length, draw)}", soft_wrap=True)


def _check_settings(kind: str, given: dict[str, int], length: int) -> None:
    rule = _RULES[kind]
    for name in given.keys() - set(rule.options or ()):
        takes = " and ".join(_option(option) for option in rule.options or ()) or "no settings"
        raise ConfigError(
            f"The pattern {kind} takes {takes}.", got=f"{_option(name)} {given[name]}", hint="leave it out."
        )
    for name, parameter in inspect.signature(rule.make).parameters.items():
        if parameter.default is parameter.empty and name not in given:
            raise ConfigError(
                f"The pattern {kind} needs {_option(name)}.",
                got="none",
                hint=f"try {_option(name)} {max(1, length // 8)}.",
            )


def _option(setting: str) -> str:
    return _SHORTER.get(setting, f"--{setting.replace('_', '-')}")


def _signature() -> inspect.Signature:
    """Return the signature of `pattern` with the rules of the registry and an option for each of their settings."""
    own = inspect.signature(pattern, eval_str=True)
    kind, length, *rest, _ = own.parameters.values()
    rules = StrEnum("Kind", {name: name for name in _RULES})  # type: ignore[misc]
    helps: dict[str, str] = {}
    for rule in _RULES.values():
        helps = {**(rule.options or {}), **helps}
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                int | None, typer.Option(_option(name), help=f"{text} ({', '.join(_rules_with(name))})")
            ],
        )
        for name, text in helps.items()
    ]
    kind = kind.replace(annotation=Annotated[rules, typer.Argument(help="which cells a cell attends to")])
    return own.replace(parameters=[kind, length, *rest, *options])


def _rules_with(setting: str) -> list[str]:
    return [name for name, rule in _RULES.items() if setting in (rule.options or ())]


pattern.__signature__ = _signature()  # type: ignore[attr-defined]
