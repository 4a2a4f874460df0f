"""A sixth routing, defined outside the package, works wherever one of the package does."""

import io
import json
import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import torch

import torchcaps as tc
from tests.own_routing.median import MedianRouting, refer_median
from tests.support import ROOT
from torchcaps.cli import main
from torchcaps.lab import recipes
from torchcaps.models import HEADS, PRIMARIES, CapsuleNet, Conv, Dense, Primary
from torchcaps.routing import ROUTINGS, Routing, VoteShape
from torchcaps.testing import check_routing
from torchcaps.votes import tensor_votes

PATH = "tests.own_routing.median:MedianRouting"
GIVEN = pytest.mark.parametrize("given", [PATH, MedianRouting, MedianRouting(3)], ids=["path", "class", "instance"])
SMALL = {"stem_channels": 4, "primary_caps": 2, "decoder": False}


def test_it_passes_the_assertions_of_the_package() -> None:
    check_routing(PATH, refer_median)


@GIVEN
def test_every_layer_takes_it(given: "str | type[Routing] | Routing") -> None:
    fresh = MedianRouting(3) if isinstance(given, Routing) else given
    dense = tc.DenseCapsules(6, 4, 3, 5, routing=fresh)
    assert dense(tc.Capsules(torch.randn(2, 6, 4))).score.shape == (2, 3)
    fresh = MedianRouting(3) if isinstance(given, Routing) else given
    convolution = tc.ConvCapsules(2, (2, 2), 3, (2, 2), 3, routing=fresh)
    assert convolution(tc.Capsules(torch.randn(2, 5, 5, 2, 4))).score.shape == (2, 3, 3, 3)
    fresh = MedianRouting(3) if isinstance(given, Routing) else given
    classes = tc.ClassCapsules(2, (2, 2), 3, (2, 2), routing=fresh)
    found = classes(tc.Capsules(torch.randn(2, 5, 5, 2, 4), torch.zeros(2, 5, 5, 2)))
    found.score.sum().backward()
    assert isinstance(classes.routing, MedianRouting)
    assert bool((classes.routing.sharpness.grad != 0).any())


def test_parameters_are_reset_to_what_attach_made() -> None:
    layer = tc.DenseCapsules(6, 4, 3, 5, routing=MedianRouting)
    sharpness = layer.routing.get_parameter("sharpness")
    torch.nn.init.constant_(sharpness, 7.0)
    layer.reset_parameters()
    assert layer.routing.get_parameter("sharpness") is sharpness
    assert torch.equal(sharpness, torch.ones(3))


def test_a_network_of_ones_own_takes_it() -> None:
    net = CapsuleNet(
        image=(1, 12, 12),
        backbone=torch.nn.Conv2d(1, 4, 3, stride=2),
        primary=Primary(MedianRouting.primary, 2, (2, 2)),
        layers=[Conv(2, (2, 2), 3, routing=MedianRouting), Dense(3, (2, 2), PATH)],
        head=MedianRouting.head,
    )
    assert net(torch.rand(2, 1, 12, 12)).logits.shape == (2, 3)
    assert net.suited_losses == ("cross_entropy",)
    assert net.routing_iterations == 2


@pytest.mark.parametrize("name", ["sabour2017_mnist", "tsai2020_cifar10", "zhao2020_smallnorb", "comparison"])
def test_models_of_the_papers_take_it(name: str) -> None:
    smallest = tc.models.entry(name).smallest
    for routing in (PATH, MedianRouting):
        model = tc.models.create(name, routing=routing, **smallest).eval()
        assert model.origin is not None
        assert model.origin.config.routing == PATH
        assert model(torch.rand(1, *model.image)).logits.shape == (1, model.origin.config.classes)
    with pytest.raises(ValueError, match="for each of its layers; give MedianRouting"):
        tc.models.create(name, routing=MedianRouting())


def test_explanations_show_it() -> None:
    from torchcaps.lab.explanation.couplings import measure_couplings
    from torchcaps.lab.explanation.parts_and_wholes import SCENES, tell
    from torchcaps.lab.tracing.traces import iterating, trace

    model = tc.models.create("sabour2017_mnist", routing=PATH, **SMALL)
    (layer,) = trace(model, torch.rand(2, 1, 28, 28))
    assert (layer.routing, len(layer.iterations)) == ("median", 3)
    with iterating(model, 5):
        assert len(trace(model, torch.rand(2, 1, 28, 28))[0].iterations) == 5
    assert measure_couplings(model, torch.rand(2, 1, 28, 28)).routings == ("median",)
    (outcome,) = tell(SCENES[0], [MedianRouting]).outcomes
    assert outcome.routing == "median"


def test_a_recipe_takes_it_and_the_loss_that_suits_it() -> None:
    recipe = recipes.configure("quickstart", "smoke", ["--model.routing", PATH])
    assert recipe.loss.kind == "cross_entropy"
    assert recipes.from_json(recipes.to_json(recipe)) == recipe


def run(*words: str, folder: Path) -> tuple[int, str, str]:
    """A command in a folder, as if nobody had imported anything from there: exit code, output, errors."""
    out, errors, paths = io.StringIO(), io.StringIO(), list(sys.path)
    with chdir(folder), redirect_stdout(out), redirect_stderr(errors):
        try:
            return main(list(words)), out.getvalue(), errors.getvalue()
        finally:
            sys.path[:] = paths
            for name in [name for name in sys.modules if name.partition(".")[0] == "my_package"]:
                del sys.modules[name]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run by a routing of a module in the working directory, trained from the command line."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "my_package").mkdir()
    (folder / "my_package" / "__init__.py").touch()
    source = ROOT / "tests" / "own_routing" / "median.py"
    (folder / "my_package" / "routings.py").write_text(f"print('imported')\n{source.read_text()}")
    routing = ("--model.routing", "my_package.routings:MedianRouting")
    words = ("--scale", "smoke", "--out", "run", "--no-report", "--threads", "1", *routing)
    code, said, errors = run("train", *words, folder=folder)
    assert code == 0, errors
    assert "imported\n" in said
    assert "torchcaps explain run --import my_package.routings" in said
    return folder


def test_the_command_line_trains_and_explains_it(trained: Path) -> None:
    written = json.loads((trained / "run" / "recipe.json").read_text())
    assert "my_package.routings:MedianRouting" in json.dumps(written)
    words = ("explain", "run", "--only", "couplings", "--limit", "8", "--import", "my_package.routings")
    code, said, errors = run(*words, folder=trained)
    assert code == 0, errors
    assert "couplings: " in said
    assert "in iteration 3" in said
    assert (trained / "run" / "explain" / "index.html").is_file()


def test_a_file_does_not_make_anyone_import(trained: Path) -> None:
    """The module is there to be imported; only the user's word imports it, in a process where nobody has."""
    (trained / "alone.safetensors").write_bytes((trained / "run" / "model.safetensors").read_bytes())
    code = "import sys; from torchcaps.cli import main; print([main(words.split()) for words in sys.argv[1:]])"
    commands = ["evaluate run", "evaluate alone.safetensors", "train --resume --out run"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *commands],
        cwd=trained,
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert done.stdout == "[2, 2, 2]\n"
    assert len(done.stderr.splitlines()) == 3
    for line in done.stderr.splitlines():
        assert "my_package.routings:MedianRouting' has been imported, and files import nothing" in line
    assert done.stderr.count("--import my_package.routings") >= 2


@pytest.mark.parametrize(
    "name", ["antigravity:x", "a; rm -rf ~:x", ":", "x" * 5000 + ":y", "torch.nn:Linear", "\x1b[2J:x"]
)
def test_what_a_file_names_is_shown_and_not_obeyed(name: str) -> None:
    written = recipes.to_json(recipes.get("quickstart"))
    written["model"]["routing"] = name
    with pytest.raises(ValueError, match="files import nothing") as caught:
        recipes.from_json(written)
    assert "antigravity" not in sys.modules
    assert len(str(caught.value)) < 500
    assert "\x1b" not in str(caught.value)
    assert "`import a; rm" not in str(caught.value)


def test_a_file_may_name_what_is_imported(tmp_path: Path) -> None:
    model = tc.models.create("sabour2017_mnist", routing=MedianRouting, **SMALL)
    tc.models.save(model, tmp_path / "model.safetensors")
    again = tc.models.load(tmp_path / "model.safetensors")
    assert again.origin == model.origin
    images = torch.rand(2, 1, 28, 28)
    assert torch.equal(again(images).logits, model(images).logits)


def test_the_benchmark_measures_it(trained: Path) -> None:
    code = (
        "import sys; import benchmarks.layer_cases as cases; cases.make_layer_case.__defaults__ = ((4, 20, 4, 3, 4),); "
        "from benchmarks.__main__ import main; sys.exit(main())"
    )
    words = ("layers", "--routing", "my_package.routings:MedianRouting", "--repeats", "1", "--threads", "1")
    command = [sys.executable, "-c", code, *words, "--out", "speed.json"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=trained, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    (case,) = json.loads((trained / "speed.json").read_text())["cases"]
    assert case["title"].startswith("median, dense layer")
    assert set(case["measurements"]) == {"torchcaps", "tensor of votes"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("my_package.nowhere:Routing", "cannot import the routing 'my_package.nowhere:Routing': No module"),
        ("tests.own_routing.median:Nothing", "no attribute 'Nothing'; expected package.module:Class"),
        ("torch:zeros", "expected a subclass of torchcaps.routing.Routing"),
        ("torch.nn:Linear", "is <class 'torch.nn.*Linear'>; expected a subclass of torchcaps.routing.Routing"),
        ("median", "or 'package.module:Class' for one of your own"),
    ],
)
def test_what_is_no_routing_is_refused(given: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tc.routing.create(given)


@pytest.mark.parametrize("name", ROUTINGS)
def test_a_routing_alone_takes_its_sizes(name: str) -> None:
    kind = ROUTINGS[name]
    routing = kind(sizes=VoteShape(children=7, parents=3, pose=4))
    votes = torch.randn(2, 7, 3, 4)
    parents = routing(tensor_votes(votes, torch.randn(2, 7, 4)) if kind.reads_poses else votes, torch.zeros(2, 7))
    assert parents.pose.shape == (2, 3, 4)
    with pytest.raises(ValueError, match="belongs to another layer already"):
        tc.DenseCapsules(7, 4, 3, 4, routing=routing)


@pytest.mark.parametrize("kind", [*ROUTINGS.values(), MedianRouting], ids=lambda kind: kind.title)
def test_attributes_name_what_there_is(kind: type[Routing]) -> None:
    assert kind.primary in PRIMARIES
    assert kind.head in HEADS
    assert set(kind.suited_losses) <= set(tc.losses.LOSSES)
    assert kind.iterates == kind.takes("num_iters")
