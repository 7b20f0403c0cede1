"""Rules of the design, checked on the sources: import order, sizes, signatures, where names may appear."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "logsparse"
FILES = sorted(SOURCE.rglob("*.py"))

# Each file may import only what stands above it. CONTRIBUTING.md shows the same picture.
ORDER = [
    "errors", "process", "storage", "combine",
    "attention.reach", "attention.pattern", "attention.plain", "attention.native",
    "model.inverse_cdf", "model.likelihood", "data.calendar", "data.holidays", "config", "settings", "presets",
    "data.mapped", "data.panel", "data.scale", "data.sampler", "data.times", "data.columns",
    "data.localtime", "data.features", "data.files", "data.grid", "data.frame", "data.later", "data.health",
    "data.findings",
    "data.series_index", "cluster.shards", "data.windows", "calibration", "simple", "defaults", "canvas", "pictures",
    "plots",
    "attention.draw", "attention.triton", "attention.attend", "attention.layer", "attention.triton_kernels",
    "model.block", "model.network", "model.decode", "model.recurrent", "model.statespace", "model.transformer",
    "attention.maps", "train.distributed",
    "cluster.share", "train.batches", "train.optim", "train.checkpoint", "train.loss", "train.loop",
    "folder", "params", "forecast", "plan", "finish", "forecaster",
    "baselines.recurrent", "baselines.estimate", "baselines.naive", "baselines.classical", "baselines.trmf", "registry",
    "evaluation.results", "evaluation.actuals", "evaluation.metrics", "evaluation.backtest", "evaluation.check",
    "evaluation.compare", "evaluation.importance", "evaluation.what_if",
    "ensemble", "cluster.ledger", "cluster.workers", "cluster.jobs",
    "reporting.numbers", "reporting.charts", "reporting.sections", "reporting.report",
    "serving.schema", "serving.tables", "serving.kserve", "serving.answers", "serving.batching", "serving.guard",
    "serving.app", "serving.server",
    "commands.options", "commands.attend", "commands.backtest", "commands.check", "commands.explain",
    "commands.pattern", "commands.predict", "commands.report", "commands.score", "commands.serve", "commands.shard",
    "commands.fit",
    "paper.catalogue", "paper.download", "paper.ledger", "paper.experiment", "paper.prepare", "paper.sources",
    "paper.shapes", "paper.cases", "paper.tables", "paper.synthetic",
    "paper.claims", "paper.figures", "paper.commands",
    "cli", "__main__",
]  # fmt: skip

FRAMES = ("polars", "pandas", "narwhals", "pyarrow")
MAY_SEE_FRAMES = {
    "data.holidays", "data.panel", "data.times", "data.columns", "data.localtime", "data.files", "data.grid",
    "data.frame", "data.later", "data.health", "forecast", "attention.maps", "cluster.shards", "cluster.workers",
    "evaluation.results", "evaluation.actuals",
    "evaluation.backtest", "evaluation.metrics", "evaluation.compare", "evaluation.importance", "evaluation.what_if",
    "reporting.numbers", "reporting.sections", "reporting.report", "serving.tables", "serving.kserve",
    "serving.answers", "commands.options",
    "paper.sources", "paper.prepare", "paper.experiment",
}  # fmt: skip
MAY_SEE_TORCH = {"data.windows", "cluster.share", "folder", "plan", "forecaster", "cluster.workers"}


def module(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


# A package's own docstring file has no layer; the top one only says where names live.
LAYERED = [path for path in FILES if path.name != "__init__.py" or module(path) in ORDER]


@pytest.mark.parametrize("path", LAYERED, ids=module)
def test_a_file_imports_only_what_stands_above_it(path: Path) -> None:
    own = module(path)
    assert own in ORDER, f"{own} has no place in the order: give it one here and in CONTRIBUTING.md"
    for name in imports(path):
        if name.startswith("logsparse."):
            needed = name.removeprefix("logsparse.")
            assert ORDER.index(needed) < ORDER.index(own), f"{own} imports {needed}, which stands below it"


@pytest.mark.parametrize("path", [p for p in FILES if not module(p).startswith("paper")], ids=module)
def test_the_library_never_imports_the_paper(path: Path) -> None:
    assert not [name for name in imports(path) if name.startswith("logsparse.paper")]


@pytest.mark.parametrize("path", FILES, ids=module)
def test_files_are_short_and_begin_by_saying_what_they_are(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 450
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring, "the first line of a module says what goes in and what comes out"


# A command takes as many options as it has.
@pytest.mark.parametrize("path", [p for p in FILES if not module(p).startswith(("commands.", "paper."))], ids=module)
def test_no_signature_takes_more_than_eight_parameters(path: Path) -> None:
    for function in functions(path):
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        count = len([a for a in arguments if a.arg not in ("self", "cls")])
        assert count <= 8, f"{function.name} takes {count}"


@pytest.mark.parametrize("path", FILES, ids=module)
def test_no_name_of_a_file_replaces_another_of_the_same_file(path: Path) -> None:
    names: list[str] = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names += [] if any("overload" in ast.unparse(mark) for mark in node.decorator_list) else [node.name]
        elif isinstance(node, ast.Assign):
            targets = [part for target in node.targets for part in getattr(target, "elts", [target])]
            names += [target.id for target in targets if isinstance(target, ast.Name)]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("path", FILES, ids=module)
def test_libraries_are_seen_only_behind_their_doors(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports(path)}
    own = module(path)
    if own not in MAY_SEE_FRAMES:
        assert not roots & set(FRAMES), "frames stay at the doors"
    if own not in MAY_SEE_TORCH and own.split(".")[0] not in ("attention", "model", "train"):
        assert "torch" not in roots, "numpy becomes torch only in data/windows; folder only stores"
    assert not roots & {"pickle", "dill", "joblib"}, "nothing is loaded that could run code"


@pytest.mark.parametrize("path", FILES, ids=module)
def test_texts_that_must_not_stand_anywhere(path: Path) -> None:
    text = path.read_text()
    for pattern in (
        r"raise Exception\(",
        r"torch\.load\(",
        r"np\.random\.(?!default_rng|Generator)",
        r"torch\.manual_seed",
    ):
        assert not re.search(pattern, text), pattern
    if not module(path).startswith("train.distributed"):
        assert "torch.distributed" not in text


@pytest.mark.parametrize("path", [p for p in FILES if module(p) != "data.columns"], ids=module)
def test_column_names_are_spoken_once(path: Path) -> None:
    strings = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
    assert not strings & {"unique_id", "ds"}, "import ID and TIME from data/columns"


def test_no_file_is_called_utils_common_or_base() -> None:
    assert not [path for path in FILES if re.search(r"util|common|base\.py|helper|misc", path.name)]


def pictured(text: str) -> set[str]:
    """Return the modules that the layout block of CONTRIBUTING.md shows, each with its package.

    A line holds an optional package (`data/`), names, and a description, two or more spaces apart; a deeper indent
    continues the package of the line above.
    """
    (block,) = re.findall(r"^src/logsparse/\n((?:  .*\n)+)", text, flags=re.MULTILINE)
    modules, package = set(), ""
    for line in block.splitlines():
        *columns, _ = re.split(r"\s{2,}", re.sub(r"\(\+ .*?\)", "", line).strip())
        names = " ".join(columns).split()
        if names[0].endswith("/"):
            package = names.pop(0).replace("/", ".")
        elif not line.startswith("   "):
            package = ""
        modules |= {package + name for name in names}
    return modules


def test_the_picture_in_contributing_shows_every_file_in_its_package_and_no_other() -> None:
    shown = pictured((ROOT / "CONTRIBUTING.md").read_text())
    assert shown == {module(path) for path in LAYERED} - {"__main__"} | {"__init__"}


def test_the_picture_is_read_by_package_and_not_by_mention() -> None:
    lines = [
        "src/logsparse/",
        "  errors  checks    of b/ and c",
        "  a/ b c (+ d.j2)    one",
        "      d    two",
        "  e    three",
    ]
    assert pictured("\n".join(lines) + "\n") == {"errors", "checks", "a.b", "a.c", "a.d", "e"}


def test_every_test_file_mirrors_a_source_file() -> None:
    names = {module(path).split(".")[-1] for path in FILES}
    apart = {"docstrings", "layers", "readme", "reproduction", "contract", "examples", "padding", "benchmark_tasks"}
    found = {path.stem.removeprefix("test_") for path in (ROOT / "tests").glob("test_*.py")}
    strays = {stem for stem in found - apart if not any(stem == name or stem.startswith(f"{name}_") for name in names)}
    assert strays == set(), "test_<file>.py or test_<file>_<part>.py"
