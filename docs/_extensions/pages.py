"""The pages are written for GitHub too: this makes a site of them.

- docs/README.md is the one index. Its sections and links become the navigation of the site, in their order.
- The pages of a folder hang below the folder's index.md.
- A link that leaves docs/ leads to the repository on GitHub.
- A page that stands for a file of the repository (the changelog) shows that file.
- The front page links to the live page if ``torchcaps demo --out docs/_build/demo`` has written it.
"""

import os
import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
REPOSITORY = "https://github.com/torchcaps/torchcaps"
SHOWN = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
LIVE = DOCS / "_build" / "demo"
LIVE_MARK = "<!-- live page -->"
LIVE_LINK = (
    '<p><a href="demo/index.html"><b>Try it in your browser</b></a>: draw, and see what the capsules make of it.</p>'
)
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^()\s#]+)(#[^()\s]*)?\)")
TOCTREE = """
```{{toctree}}
:hidden:
{options}
{pages}
```
"""


def make_navigation(index: str) -> str:
    """One hidden toctree for each section of docs/README.md, with the pages that it links to."""
    trees = []
    parts = SECTION.split(index)[1:]
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        pages = dict.fromkeys(page for page, _ in LINK.findall(rewrite_links(text, DOCS)) if (DOCS / page).is_file())
        if pages:
            trees.append(TOCTREE.format(options=f":caption: {title}\n", pages="\n".join(pages)))
    return "".join(trees)


def rewrite_links(text: str, folder: Path) -> str:
    """Links of a page as they lead from ``folder``, where they name a file outside of docs/."""

    def rewrite(link: re.Match[str]) -> str:
        target, anchor = link[1], link[2] or ""
        path = Path(os.path.normpath(folder / target))
        if ":" in target or not path.exists() or not path.is_relative_to(ROOT):
            return link[0]
        name = path.relative_to(ROOT).as_posix()
        stands_for = {file: page for page, file in SHOWN.items()} | {
            "README.md": "index.md",
            "docs/README.md": "index.md",
        }
        if name in stands_for:
            path = DOCS / stands_for[name]
            anchor = "" if path.name == "index.md" else anchor
        if not path.is_relative_to(DOCS):
            return f"]({REPOSITORY}/{'tree' if path.is_dir() else 'blob'}/main/{name}{anchor})"
        return f"]({os.path.relpath(path, folder if folder.is_relative_to(DOCS) else DOCS)}{anchor})"

    return LINK.sub(rewrite, text)


def link_live_page(text: str, folder: Path) -> str:
    """The front page with a link to the live page, if there is one."""
    return text.replace(LIVE_MARK, LIVE_LINK if (folder / "index.html").is_file() else "")


def read_source(app: Sphinx, docname: str, source: list[str]) -> None:
    path = Path(app.env.doc2path(docname))
    page = path.relative_to(DOCS).as_posix()
    if page in SHOWN:
        source[0] = rewrite_links((ROOT / SHOWN[page]).read_text(), ROOT)
        return
    source[0] = rewrite_links(source[0], path.parent)
    if page == "index.md":
        source[0] = link_live_page(source[0], LIVE)
        source[0] += make_navigation((DOCS / "README.md").read_text())
    elif path.name == "index.md":
        source[0] += TOCTREE.format(options=":glob:\n", pages="*")


def note_sources(app: Sphinx, env: object, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """Pages to read again, because what they show is in another file."""
    return ["index", *(page.removesuffix(".md") for page in SHOWN)]


def copy_live_page(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.name == "html" and (LIVE / "index.html").is_file():
        shutil.copytree(LIVE, app.outdir / "demo", dirs_exist_ok=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", read_source)
    app.connect("env-get-outdated", note_sources)
    app.connect("build-finished", copy_live_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
