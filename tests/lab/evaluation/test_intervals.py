"""Intervals agree with scipy's, which the library itself does without."""

import pytest
from scipy import stats

from torchcaps.lab.evaluation import difference_over_seeds, over_seeds, student_quantile
from torchcaps.lab.training import interval


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 30, 101])
@pytest.mark.parametrize("probability", [0.5, 0.9, 0.975, 0.999])
def test_the_quantiles_of_student(probability: float, freedom: int) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), abs=1e-9)


@pytest.mark.parametrize(("count", "total"), [(0, 3), (3, 3), (1, 7), (975, 1000), (59_999, 60_000)])
def test_wilson(count: int, total: int) -> None:
    expected = stats.binomtest(count, total).proportion_ci(method="wilson")
    assert interval(count, total) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_the_interval_over_seeds() -> None:
    values = [0.971, 0.975, 0.969, 0.98]
    expected = stats.t.interval(0.95, 3, loc=sum(values) / 4, scale=stats.sem(values))
    assert over_seeds(values) == pytest.approx(expected, abs=1e-12)


def test_the_interval_of_a_difference_is_welchs_or_a_little_wider() -> None:
    first, second = [0.971, 0.975, 0.969, 0.98], [0.951, 0.96, 0.955]
    found = stats.ttest_ind(first, second, equal_var=False)
    middle, scale = sum(first) / 4 - sum(second) / 3, (stats.sem(first) ** 2 + stats.sem(second) ** 2) ** 0.5
    freedom = int(found.df)  # pyright: ignore[reportAttributeAccessIssue]
    expected = stats.t.interval(0.95, freedom, loc=middle, scale=scale)
    low, high = difference_over_seeds(first, second)
    assert (low, high) == pytest.approx(expected, abs=1e-12)
    exact = found.confidence_interval(0.95)
    assert low < exact.low < exact.high < high
    assert difference_over_seeds([0.5, 0.6, 0.7], [0.3, 0.4, 0.5]) == pytest.approx(
        stats.ttest_ind([0.5, 0.6, 0.7], [0.3, 0.4, 0.5]).confidence_interval(0.95), abs=1e-12
    )
    assert difference_over_seeds([0.9, 0.9], [0.8, 0.8]) == pytest.approx((0.1, 0.1))


def test_what_has_no_interval_says_so() -> None:
    with pytest.raises(ValueError, match="at least two runs; got 1"):
        over_seeds([0.5])
    with pytest.raises(ValueError, match="at least two runs of each; got 3 and 1"):
        difference_over_seeds([0.5, 0.6, 0.7], [0.5])
    with pytest.raises(ValueError, match="0 degrees of freedom"):
        student_quantile(0.9, 0)
