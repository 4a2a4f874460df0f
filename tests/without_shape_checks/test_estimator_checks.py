"""scikit-learn's own checks of estimators, every one of them."""

from typing import Any
from unittest import SkipTest

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from torchcaps.sklearn import CapsuleClassifier, CapsuleEncoder

# The smallest network that tells three clouds of points apart: the checks fit it two hundred times.
TINY: dict[str, Any] = {
    "model_options": {"widths": (8,), "caps": 2, "num_iters": 1},
    "epochs": 6,
    "batch_size": 32,
    "learning_rate": 0.04,
}
# Checks that do not apply, and why. There are none that fail.
NOT_APPLICABLE = {
    "check_array_api_input": "runs only with SCIPY_ARRAY_API set; the estimators take numpy arrays",
}


def name_of(check: Any) -> str:
    return getattr(check, "func", check).__name__


@parametrize_with_checks([CapsuleClassifier(**TINY), CapsuleEncoder(**TINY)])
def test_estimator_check(estimator: Any, check: Any) -> None:
    if name_of(check) in NOT_APPLICABLE:
        with pytest.raises(SkipTest):
            check(estimator)
        return
    try:
        check(estimator)
    except SkipTest as error:
        raise AssertionError(f"{name_of(check)} does not run here, and no reason is listed") from error
