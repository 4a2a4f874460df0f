"""scikit-learn's own checks of estimators, every one of them."""

from functools import partial
from typing import Any
from unittest import SkipTest

import pytest
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from tests.support import SINGLE_VALUE
from torchcaps.sklearn import CapsuleClassifier, CapsuleEncoder

# The smallest network that tells three clouds of points apart: the checks fit it two hundred times.
TINY: dict[str, Any] = {
    "model_options": {"widths": (8,), "caps": 2, "num_iters": 1},
    "epochs": 6,
    "batch_size": 32,
    "learning_rate": 0.04,
}
# Checks that do not apply, and why.
NOT_APPLICABLE = {
    "check_array_api_input": "runs only with SCIPY_ARRAY_API set; the estimators take numpy arrays",
}


# Checks that ask for more digits than single precision has, and why; they run with its tolerance instead.
ROUNDED = {
    "check_methods_sample_order_invariance": "asks for 1e-7: matrix products round by where in the batch a row stands",
}


def name_of(check: Any) -> str:
    return getattr(check, "func", check).__name__


@parametrize_with_checks([CapsuleClassifier(**TINY), CapsuleEncoder(**TINY)])
def test_estimator_check(estimator: Any, check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if name_of(check) in ROUNDED:
        near = partial(estimator_checks.assert_allclose_dense_sparse, rtol=SINGLE_VALUE)
        monkeypatch.setattr(estimator_checks, "assert_allclose_dense_sparse", near)
    if name_of(check) in NOT_APPLICABLE:
        with pytest.raises(SkipTest):
            check(estimator)
        return
    try:
        check(estimator)
    except SkipTest as error:
        raise AssertionError(f"{name_of(check)} does not run here, and no reason is listed") from error
