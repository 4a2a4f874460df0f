"""The wheel works on its own: installed into an empty environment and used from an empty directory.

The environment holds what the wheel declares and nothing else: the distributions that its requirements name, linked
from the environment that runs the tests, so that nothing is downloaded. A dependency that is used and not declared
fails here.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import torchcaps

ROOT = Path(__file__).parents[1]

LAYER = """
import torch
import torchcaps as tc
from torchcaps import kernels

layer = tc.DenseCapsules(6, 8, 3, 4, routing="dynamic")
capsules = layer(tc.Capsules(torch.randn(2, 6, 8)))
assert capsules.pose.shape == (2, 3, 4)
assert capsules.pose.sum().isfinite()
print(tc.__version__)
print(tc.__file__)
print(kernels.available())
"""


def required(wheel: Distribution, extra: str) -> Iterator[Distribution]:
    """The distributions that a wheel declares, and theirs, and so on."""
    queue, seen = [(wheel, extra)], set()
    while queue:
        current, extra = queue.pop()
        for requirement in map(Requirement, current.requires or ()):
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            for wanted in ("", *requirement.extras):
                if (requirement.name, wanted) not in seen:
                    seen.add((requirement.name, wanted))
                    found = wheel if requirement.name == wheel.name else distribution(requirement.name)
                    queue.append((found, wanted))
                    yield found


def link(package: Distribution, site: Path) -> None:
    """Make a distribution of this environment visible in another one."""
    for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
        if not (site / top).exists():
            (site / top).symlink_to(Path(str(package.locate_file(top))))


def run(*command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command without this checkout on its path."""
    return subprocess.run([*map(str, command)], cwd=folder, env={}, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("dist"))[0]


def build(root: Path, folder: Path, **variables: str) -> tuple[Path, str]:
    """The wheel of a checkout, and what its build says."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    environment = os.environ | variables
    done = subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True, text=True)
    (built,) = folder.glob("*.whl")
    return built, done.stdout + done.stderr


def environment(folder: Path, wheel: Path, extra: str) -> Path:
    """The folder of the programs of an environment with the wheel, one of its extras, and nothing else."""
    venv.create(folder, with_pip=False, symlinks=True)
    programs = folder / "bin"
    install = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "--quiet"]
    subprocess.run([*install, "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    (installed,) = distributions(path=[str(site)])
    for package in required(installed, extra):
        if package.name != installed.name:
            link(package, site)
    return programs


@pytest.fixture(scope="module")
def without_lab(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("without_lab"), wheel, "")


@pytest.fixture(scope="module")
def with_lab(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("with_lab"), wheel, "lab")


def test_layers_need_no_extra(without_lab: Path, tmp_path: Path) -> None:
    done = run(without_lab / "python", "-c", LAYER, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    version, file, native = done.stdout.split()
    assert version == torchcaps.__version__
    assert native == str(shutil.which("cc") is not None), "kernels are in the wheel wherever there is a compiler"
    assert Path(file).is_relative_to(without_lab.parent), "imported from somewhere else"
    assert not list(tmp_path.iterdir()), "importing and using a layer wrote files"


def test_the_command_line_says_what_to_install(without_lab: Path, tmp_path: Path) -> None:
    done = run(without_lab / "torchcaps", "list", folder=tmp_path)
    assert done.returncode == 2
    assert not done.stdout
    (line,) = done.stderr.splitlines()
    assert "pip install 'torchcaps[lab]'" in line


def test_the_command_line_works_with_the_lab(with_lab: Path, tmp_path: Path) -> None:
    done = run(with_lab / "torchcaps", "list", "quickstart", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "quickstart" in done.stdout
    assert not list(tmp_path.iterdir())


def test_only_the_package_is_installed(without_lab: Path) -> None:
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(without_lab.parent)}))
    (installed,) = (found for found in distributions(path=[str(site)]) if found.name == "torchcaps")
    assert installed.version == torchcaps.__version__
    tops = {file.parts[0] for file in installed.files or ()} - {".."}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"torchcaps"}
    names = {file.parent.name for file in installed.files or () if file.name == "model.safetensors"}
    assert names == set(torchcaps.models.list(pretrained=True))


def test_a_compiler_that_fails_leaves_a_wheel_without_kernels(tmp_path: Path) -> None:
    """The build goes on, says so, and takes no library of an older source along."""
    checkout = tmp_path / "checkout"
    skipped = shutil.ignore_patterns("__pycache__", "*.so", "pretrained")
    shutil.copytree(ROOT / "torchcaps", checkout / "torchcaps", ignore=skipped)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    stale = checkout / "torchcaps" / "kernels" / "_kernels.so"
    stale.write_bytes(b"")
    os.utime(stale, (0, 0))
    built, said = build(checkout, tmp_path / "dist", CC="false")
    assert "torchcaps without native kernels, slower on CPUs" in said
    assert "ended with 1" in said
    assert built.name.endswith("-py3-none-any.whl")
    assert not stale.exists()
    names = zipfile.ZipFile(built).namelist()
    assert "torchcaps/kernels/kernels.c" in names
    assert not [name for name in names if name.endswith(".so")]
