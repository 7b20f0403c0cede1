"""`python sanitized.py SITE TEST...`: run tests on the package in SITE instead of the installed one."""

from __future__ import annotations

import importlib
import sys

import pytest


def main() -> int:
    site, *tests = sys.argv[1:]
    # An editable install finds the package before any path is looked at.
    sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__name__.startswith("ScikitBuild")]
    sys.path.insert(0, site)
    found = importlib.import_module("logsparse._native").__file__
    assert found is not None
    assert found.startswith(site), found
    # Tests that start other processes would meet the installed package there, or a preloaded sanitizer in their tools.
    chosen = ["-k", "not openmp and not compile and not opcheck"]
    return pytest.main(["-q", "-s", "-p", "no:cacheprovider", *chosen, *tests])


if __name__ == "__main__":
    sys.exit(main())
