"""The laboratory: what looks at networks, over the library. Nothing here is imported before it is asked for.

``tc.lab.explain(model, inputs, labels)`` sees inside any module that contains capsule layers;
``tc.lab.diagnose(model, batch)`` says why it does not learn.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchcaps.lab.diagnosis import diagnose
    from torchcaps.lab.reports.explanation import explain

__all__ = ["diagnose", "explain"]

PLACES = {"diagnose": "torchcaps.lab.diagnosis", "explain": "torchcaps.lab.reports.explanation"}


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"torchcaps.lab has no {name!r}; it has {', '.join(PLACES)}")
    try:
        return getattr(importlib.import_module(PLACES[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("torchcaps"):
            raise
        raise ModuleNotFoundError(
            f"torchcaps.lab.{name} needs {error.name}; pip install 'torchcaps[lab]' brings it", name=error.name
        ) from error


def __dir__() -> list[str]:
    return sorted(__all__)
