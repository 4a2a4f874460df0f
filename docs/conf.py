"""Settings of the site; `make docs` builds it into docs/_build/html."""

import inspect
import sys
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS / "_extensions")]

import torchcaps  # noqa: E402

project = "torchcaps"
author = "The torchcaps authors"
copyright = f"2026, {author}"
release = version = torchcaps.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.linkcode",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "docstrings",
    "pages",
    "references",
]
exclude_patterns = ["_build", "_extensions", "conf.py", "README.md"]

# Tutorials are notebooks in the percent format: Python files that run, with text between `# %%`.
nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_timeout = 600  # a tutorial takes less than 180 s on two idle cores; machines are not always idle
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_mime_priority_overrides = [("html", "image/svg+xml", 1)]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_inherit_docstrings = False  # what a method inherits is said once
autodoc_member_order = "groupwise"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = ["Shape"]
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
pygments_dark_style = "monokai"
html_title = f"torchcaps {release}"
html_baseurl = "https://torchcaps.github.io/torchcaps/"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "source_repository": "https://github.com/torchcaps/torchcaps/",
    "source_branch": "main",
    "source_directory": "docs/",
    "top_of_page_buttons": ["view"],
}
html_copy_source = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
mathjax_path = "https://cdn.jsdelivr.net/npm/mathjax@4.0.0/tex-mml-chtml.js"
mathjax4_config = {"output": {"displayOverflow": "linebreak"}}  # long equations on phones

# External links are checked by `sphinx-build -b linkcheck`, which needs a network; see .github/workflows/site.yml.
linkcheck_timeout = 20
linkcheck_ignore = [r"https://github\.com/torchcaps/.*"]


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """Where the source of an object is on GitHub."""
    thing: object = sys.modules.get(info["module"])
    for name in info["fullname"].split("."):
        thing = getattr(thing, name, None)
    thing = inspect.unwrap(thing) if callable(thing) else thing  # pyright: ignore[reportArgumentType]
    if isinstance(thing, ModuleType) or not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return None
    try:
        file, (lines, first) = inspect.getsourcefile(thing), inspect.getsourcelines(thing)
    except (OSError, TypeError):
        return None
    if file is None or not Path(file).is_relative_to(ROOT):
        return None
    place = Path(file).relative_to(ROOT).as_posix()
    return f"https://github.com/torchcaps/torchcaps/blob/main/{place}#L{first}-L{first + len(lines) - 1}"
