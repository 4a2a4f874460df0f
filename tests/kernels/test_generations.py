"""The library has code for three generations of processors, and a processor runs one of them: here the other two."""

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.support import ROOT, THOROUGH
from torchcaps.kernels import build, library

HAVE_GCC = bool(shutil.which("cc")) and "Free Software Foundation" in subprocess.getoutput("cc --version")
pytestmark = pytest.mark.skipif(
    not HAVE_GCC or platform.machine() != "x86_64", reason="generations are GCC's, of processors of x86-64"
)
SUPPORTED = {"any": "0", "v3": "((level)[8] == '3')"}
"""What the processor says to each level that it is asked for, ``x86-64-v4`` and ``x86-64-v3``. The code of the levels
that are not taken is not even compiled."""
FLOATS = {"any": 4, "v3": 8}
"""Numbers in a vector of single precision: as long as a register. Compilers keep longer ones in memory."""
PARITY = [
    *[f"tests/kernels/test_{name}.py" for name in ("kernels", "few", "closed", "competition", "norm")],
    "tests/test_convolution.py",
]
"""Values and gradients of all kernels."""
PROGRAM = """
import sys
from pathlib import Path

import pytest
import torch


class UseLibrary:
    def pytest_collection(self) -> None:
        from torchcaps.kernels import library

        library.LIBRARY = Path(sys.argv[1])
        assert library.available()
        assert library.count_lanes(torch.float32) == 2 * library.count_lanes(torch.float64) == int(sys.argv[2])


sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[3:]], plugins=[UseLibrary()]))
"""


def find_generations(path: Path) -> set[str]:
    """The generations that a library has code for, by the names of its functions."""
    return {found.decode() for found in re.findall(rb"_(?:float|double)_(any|v3|v4)\b", path.read_bytes())}


@pytest.mark.skipif(not library.available(), reason="the kernels are not compiled")
def test_the_library_has_code_for_three_generations() -> None:
    assert find_generations(library.LIBRARY) == {"any", "v3", "v4"}


@pytest.mark.skipif(not THOROUGH, reason="compiles the kernels, which takes half a minute: make thorough")
@pytest.mark.parametrize("generation", SUPPORTED)
def test_older_processors_compute_the_same(generation: str, tmp_path: Path) -> None:
    if generation == "v3" and torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        pytest.skip("this processor is older than that")
    made = tmp_path / "kernels.so"
    compiler = f'cc "-D__builtin_cpu_supports(level)={SUPPORTED[generation]}"'
    assert not build.compile_kernels(made, compiler=compiler)
    assert find_generations(made) == {generation}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(made), str(FLOATS[generation]), *PARITY],
        cwd=ROOT,
        env=os.environ | {"TORCHCAPS_PLAIN": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
