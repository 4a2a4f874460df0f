"""The native kernels: built where there is a compiler, not needed where there is none, the same results either way."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path as FilePath

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from tests.support import DOUBLE, SINGLE_GRADIENT, SINGLE_VALUE, assert_near, assert_same, gradients, numbers
from torchcaps import kernels
from torchcaps.capsules import _length_score, _squash, length_score, squash
from torchcaps.kernels import build, library
from torchcaps.kernels.workspace import Workspace
from torchcaps.votes import convolutional_votes, dense_votes
from torchcaps.votes.native import Tape
from torchcaps.votes.paths import Path, force_path

needs_kernels = pytest.mark.skipif(not kernels.available(), reason="the kernels are not compiled")


def test_this_machine_has_the_kernels_if_it_has_a_compiler() -> None:
    assert kernels.available() or not shutil.which("cc"), "there is a compiler: run python torchcaps/kernels/build.py"


def test_no_compiler_is_no_error(tmp_path: FilePath) -> None:
    assert "no C compiler" in build.compile_kernels(tmp_path / "kernels.so", compiler="no-such-compiler")


def test_a_compiler_that_fails_is_no_error(tmp_path: FilePath) -> None:
    assert "ended with 1" in build.compile_kernels(tmp_path / "kernels.so", compiler="false")
    assert not list(tmp_path.iterdir())


def test_a_library_of_an_older_source_is_compiled_again(tmp_path: FilePath) -> None:
    made = tmp_path / "kernels.so"
    assert not build.is_up_to_date(made)
    made.write_bytes(b"")
    assert build.is_up_to_date(made)
    os.utime(made, (0, 0))
    assert not build.is_up_to_date(made)


@pytest.mark.parametrize("content", [b"", b"not a library"])
def test_a_library_that_cannot_be_loaded_is_not_used(
    content: bytes, tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.so").write_bytes(content)
    monkeypatch.setattr(library, "LIBRARY", tmp_path / "broken.so")
    library._load.cache_clear()
    try:
        assert not kernels.available()
        assert squash(torch.tensor([3.0, 4.0])).norm() < 1
    finally:
        library._load.cache_clear()


def test_a_variable_of_the_environment_turns_them_off() -> None:
    program = "import torchcaps.kernels as k; print(k.available())"
    environment = {"TORCHCAPS_KERNELS": "off", "PYTHONPATH": str(FilePath(tc.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )  # fmt: skip
    assert done.stdout.strip() == "False"


def test_the_build_hook_makes_a_wheel_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    root = FilePath(tc.__file__).parents[1]
    spec = importlib.util.spec_from_file_location("hatch_build", root / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.tag_of("linux-x86_64") == "py3-none-linux_x86_64"
    assert module.tag_of("macosx-11.0-arm64") == "py3-none-macosx_11_0_arm64"


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("ours", "plain"), [(squash, _squash), (length_score, _length_score)])
@pytest.mark.parametrize("size", [0.0, 1e-8, 1.0, 1e20])
def test_squash_is_that_of_the_plain_operations(ours, plain, size: float, dtype: torch.dtype) -> None:
    total = numbers(3, 2, 5, dtype=dtype) * size
    value, gradient = (SINGLE_VALUE, SINGLE_GRADIENT) if dtype == torch.float32 else (DOUBLE, DOUBLE)
    assert_same(lambda t: [ours(t)], lambda t: [plain(t)], [total], value, gradient)


@needs_kernels
def test_rows_that_are_not_contiguous() -> None:
    total = numbers(5, 4).T
    assert_near(squash(total), _squash(total))
    assert_near(length_score(total), _length_score(total))


# Types beyond and below whole tiles of both number types, one child, one parent, groups, several rows.
SIZES = [(1, 1, 1, 1, 1, 1), (3, 16, 2, 1, 8, 16), (2, 37, 3, 4, 4, 4), (5, 33, 1, 2, 3, 5), (1, 70, 4, 1, 8, 3)]
# More rows than a block of them, whole blocks and parts; rows in several parts; weights beyond the second cache.
SIZES += [(9, 20, 3, 1, 4, 6), (70, 9, 2, 4, 4, 4), (66, 5, 2, 1, 3, 4), (5, 144, 9, 1, 8, 16)]


@needs_kernels
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("groups", [1, 2])
def test_every_primitive_and_its_gradients(sizes: tuple[int, ...], groups: int) -> None:
    n, t, j, c, d, h = sizes
    i = groups * t
    tensors = [
        numbers(n, i, c * d), numbers(t, j, d, h), numbers(t, j, c, h, seed=1), numbers(i, c, h, seed=2),
        numbers(n, i, j), numbers(n, j, c * h, seed=3), numbers(n, j, c * h, seed=4).abs(),
    ]  # fmt: skip

    def ask(*given: Tensor) -> list[Tensor | None]:
        pose, weight, bias, coordinates, pairs, parents, precision = given
        votes = dense_votes(pose, weight, bias, rows=c, coordinates=coordinates)
        return [
            votes.mix(pairs), votes.mix_squares(pairs), votes.mix_squares(pairs, parents), votes.agreement(parents),
            votes.distance(parents, precision),
        ]  # fmt: skip

    def natively(*given: Tensor) -> list[Tensor | None]:
        with force_path(Path.NATIVE):
            return ask(*given)

    def plainly(*given: Tensor) -> list[Tensor | None]:
        with force_path(Path.PLAIN):
            return ask(*given)

    assert_same(natively, plainly, tensors)
    single = [tensor.float() for tensor in tensors]  # other vectors, other blocks
    for found, expected in zip(natively(*single), plainly(*tensors), strict=True):
        assert found is not None
        assert expected is not None
        assert_near(found, expected.float(), SINGLE_VALUE)


@needs_kernels
def test_only_wanted_gradients_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    original = library.run_kernel

    def watch(name, dtype, job):
        asked.append(name + "".join(f" {key}" for key in ("to_pose", "to_weight", "to_bias") if getattr(job, key)))
        return original(name, dtype, job)

    monkeypatch.setattr("torchcaps.votes.native.run_kernel", watch)
    pose, weight = numbers(2, 5, 4), numbers(5, 3, 4, 4)
    with force_path(Path.NATIVE):
        for wanted in (pose, weight):
            asked.clear()
            wanted.requires_grad_()
            dense_votes(pose, weight).mix(torch.ones(2, 5, 3, dtype=torch.float64)).sum().backward()
            wanted.requires_grad_(False)
            assert asked == ["sums", "carry to_pose" if wanted is pose else "carry to_weight"]
        asked.clear()
        pairs = torch.ones(2, 5, 3, dtype=torch.float64, requires_grad=True)
        dense_votes(pose, weight).mix(pairs).sum().backward()
        assert asked == ["sums", "dots"]


def step(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    pose, weight = numbers(6, 9, 9, 5, 16, dtype=dtype), numbers(3, 3, 5, 7, 4, 4, dtype=dtype)
    beta = torch.zeros(7, dtype=dtype)

    def route(pose: Tensor, weight: Tensor) -> list[Tensor | None]:
        votes = convolutional_votes(pose, weight, stride=2, rows=4)
        return list(tc.routing.em_routing(votes, None, beta_cost=beta, beta_active=beta))

    values, found = gradients(route, [pose, weight])
    return [part for part in [*values, *found] if part is not None]


@pytest.fixture
def natively() -> Iterator[None]:
    with force_path(Path.NATIVE):  # around all threads: the setting is the process's
        yield


@needs_kernels
@pytest.mark.usefixtures("natively")
def test_results_do_not_depend_on_threads_of_any_kind() -> None:
    before = torch.get_num_threads()
    expected = step()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            # torch's own sums over pairs depend on the number of threads; those of the kernels do not.
            for one, other in zip(step(), expected, strict=True):
                assert_near(one, other, 1e-5)
            # The path is forced for the process: no thread may be the first to force it and the last to give up.
            with force_path(Path.NATIVE), ThreadPoolExecutor(2) as pool:
                for found in pool.map(lambda _: step(), range(2)):
                    for one, other in zip(found, step(), strict=True):
                        assert torch.equal(one, other)
    finally:
        torch.set_num_threads(before)


@needs_kernels
@pytest.mark.usefixtures("natively")
def test_threads_of_torch_and_of_our_own_give_the_same() -> None:
    found, before = library._load(), torch.get_num_threads()
    assert found is not None
    torch.set_num_threads(2)
    try:
        theirs = step()
        found.use_team(None)
        for one, other in zip(step(), theirs, strict=True):
            assert torch.equal(one, other)
    finally:
        found.use_team(library._find_team())
        torch.set_num_threads(before)


@needs_kernels
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_does_not_wait_for_threads_it_does_not_have() -> None:
    tape = Tape([torch.randn(16, 1, 32, 1, 8), torch.randn(32, 10, 8, 16)], Workspace())
    tape.sizes.threads = 2
    coupling = torch.rand(16, 1, 32, 10)
    tape.sum(coupling, None, squares=False)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        tape.sum(coupling, None, squares=False)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@needs_kernels
def test_second_derivatives_and_many_gradients_at_once() -> None:
    pose, weight = numbers(2, 5, 4).requires_grad_(), numbers(5, 3, 4, 2).requires_grad_()

    def route(pose: Tensor, weight: Tensor) -> Tensor:
        return tc.routing.dynamic_routing(dense_votes(pose, weight), num_iters=2).pose

    with force_path(Path.NATIVE):
        assert torch.autograd.gradgradcheck(route, [pose, weight])
        one = torch.autograd.functional.jacobian(route, (pose, weight), vectorize=True)
        other = torch.autograd.functional.jacobian(route, (pose, weight))
    for each, expected in zip(one, other, strict=True):
        assert_near(each, expected)


@needs_kernels
def test_a_graph_that_is_kept_may_be_used_twice() -> None:
    pose, weight = numbers(2, 5, 4).requires_grad_(), numbers(5, 3, 4, 2).requires_grad_()
    with force_path(Path.NATIVE):
        found = tc.routing.dynamic_routing(dense_votes(pose, weight)).pose.sum()
        first = torch.autograd.grad(found, [pose, weight], retain_graph=True)
        second = torch.autograd.grad(found, [pose, weight])
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@needs_kernels
@pytest.mark.parametrize("turned", [False, True], ids=["weights-in-order", "weights-turned"])
@pytest.mark.parametrize(("children", "parents"), [(170, 9), (20, 3)], ids=["many-weights", "few-weights"])
def test_gradients_add_up_over_blocks(
    monkeypatch: pytest.MonkeyPatch, children: int, parents: int, turned: bool
) -> None:
    monkeypatch.setattr("torchcaps.votes.limits.MOST_NATIVE_PAIRS_KEPT", 0)
    monkeypatch.setattr("torchcaps.votes.limits.NATIVE_BLOCK_PAIRS", 1)  # so blocks have the fewest rows, 32 of 70
    pose, bias = numbers(70, children, 8), numbers(children, parents, 1, 16)
    weight = numbers(children, parents, 16, 8).mT if turned else numbers(children, parents, 8, 16)
    assert weight.is_contiguous() is not turned

    def route(path: Path) -> list[Tensor]:
        inputs = [tensor.detach().requires_grad_() for tensor in (pose, weight, bias)]
        with force_path(path):
            found = tc.routing.dynamic_routing(dense_votes(*inputs)).pose
        return [found.detach(), *torch.autograd.grad((found * found.detach().cos()).sum(), inputs)]

    with library.without_kernels():
        expected = route(Path.PLAIN)
    for found, wanted in zip(route(Path.NATIVE), expected, strict=True):
        assert_near(found, wanted, DOUBLE)
