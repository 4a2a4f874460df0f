import os
from collections.abc import Iterator
from pathlib import Path

import jaxtyping
import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The directory of published files, for tests that read them."""
    named = os.environ.get("TORCHCAPS_DATA")
    if not named:
        pytest.skip("TORCHCAPS_DATA is not set: published files are not read")
    return Path(named)


@pytest.fixture
def real(real_data: Path):
    """Skips a test whose dataset is not among the published files."""

    def place(relative: str) -> Path:
        if not (real_data / relative).exists():
            pytest.skip(f"no {relative} in TORCHCAPS_DATA")
        return real_data / relative

    return place


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither reads nor fills the cache directory of whoever runs the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def unchecked() -> Iterator[None]:
    """For tests that pass wrong shapes on purpose: the library's own words are asked for, not the annotations'."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
