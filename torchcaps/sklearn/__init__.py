"""Capsule networks as scikit-learn estimators: ``CapsuleClassifier`` and ``CapsuleEncoder``.

They are trained by the laboratory's loop: ``pip install 'torchcaps[sklearn]'`` brings all that this needs.
"""

from torchcaps.extras import explain_missing

try:
    from torchcaps.sklearn.estimators import CapsuleClassifier, CapsuleEncoder
except ImportError as error:
    raise ImportError(explain_missing(error, "torchcaps.sklearn") or str(error), name=error.name) from error

__all__ = ["CapsuleClassifier", "CapsuleEncoder"]
