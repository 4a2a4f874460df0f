"""Names of the API in running text lead to the reference: `DenseCapsules`, `tc.load`, `torchcaps.routing.em_routing`.

Docstrings and pages write names as code, which is what a terminal and GitHub show well; no page needs roles.
"""

import re
from collections import defaultdict

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.nodes import make_refnode

NAME = re.compile(r"(?:tc|torchcaps)(?:\.\w+)+|\w+")
KINDS = ("class", "exception", "function", "data")


def find_targets(app: Sphinx) -> dict[str, tuple[str, str]]:
    """What may be written, and the page and the anchor that it leads to."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for full, entry in app.env.domains["py"].objects.items():  # pyright: ignore[reportAttributeAccessIssue]
        if entry.objtype not in KINDS or entry.aliased:
            continue
        place = (entry.docname, entry.node_id)
        short = full.rpartition(".")[2]
        found[full].add(place)
        found["tc" + full.removeprefix("torchcaps")].add(place)
        # `load` and `list` are words of other places too, and references have the names of what they check.
        if ("_" in short or short[:1].isupper()) and ".reference." not in full:
            found[short].add(place)
    return {name: places.pop() for name, places in found.items() if len(places) == 1}


def link_names(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    targets = find_targets(app)
    for code in list(doctree.findall(nodes.literal)):
        name = code.astext().removesuffix("()").partition("(")[0]
        place = targets.get(name) if NAME.fullmatch(name) else None
        if place is None or isinstance(code.parent, nodes.reference | nodes.title):
            continue
        page, anchor = place
        if page == docname and _is_inside(code, anchor):
            continue
        code.replace_self(make_refnode(app.builder, docname, page, anchor, code.deepcopy()))


def _is_inside(node: nodes.Node, anchor: str) -> bool:
    """Whether a node stands in the description of the very thing that it names."""
    parent: nodes.Element | None = node.parent
    while parent is not None:
        if any(isinstance(part, nodes.Element) and anchor in part["ids"] for part in parent.children[:1]):
            return True
        parent = parent.parent
    return False


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-resolved", link_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
