"""Settings of the documentation site: `make docs` builds docs/ into build/docs."""

from __future__ import annotations

import re
from importlib.metadata import version as installed
from typing import Any

from sphinx.application import Sphinx

project = "logsparse"
author = "the logsparse authors"
version = release = installed("logsparse")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
html_theme = "furo"
html_title = f"logsparse {release}"

myst_heading_anchors = 3
nb_execution_mode = "off"  # the tests execute the notebook; the site shows the outputs it was saved with

napoleon_google_docstring = False  # numpy style; else "name: text" under a field is taken for a type
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
default_role = "literal"  # docstrings write `name` for code
copybutton_exclude = ".linenos, .gp, .go"


PLAIN = r"\||(?<=\w)_(?!\w)|(?<![\\\w*])\*\*(?=\w)(?!.*\*\*)"


def escape_docstring(*event: Any) -> None:
    """Escape what is plain text in a docstring and markup in reST: |y|, names_, **settings."""
    lines: list[str] = event[-1]
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = re.split("(`[^`]*`)", line)
            parts[::2] = [re.sub(PLAIN, r"\\\g<0>", part) for part in parts[::2]]
            lines[i] = "".join(parts)


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-docstring", escape_docstring)
