"""Model files of strangers, made up at random: every one loads or is refused with a ValueError, in little memory.

``python -m tests.models.fuzz_files SECONDS [SEED]`` goes on for so long and prints what it counted.
"""

import json
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torchcaps as tc
from torchcaps.files import encode_tensors
from torchcaps.models.saving import FORMAT, checksum

NAMES = (
    "sabour2017_mnist",
    "hinton2018_smallnorb_small",
    "heinsen2019_sst5",
    "zhao2020_cifar10",
    "comparison",
    "resnet18",
)
VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 3, 2**31, 2**63, 10**30, -(2**40), 0.0, 0.5, 1e308, float("inf"), float("nan"), True, None),
    *(
        "",
        "em",
        "heinsen",
        "x" * 5000,
        "\x1b[2J",
        [],
        [1],
        [0, 0],
        [4, 4],
        [10**9] * 3,
        [[1]],
        {},
        {"a": 1},
        list(range(3000)),
    ),
)
MEBIBYTES = 300  # that memory may grow while files of a few kilobytes are read


TINY = {"image_size": 12, "stem_channels": 2, "kernel_size": 3, "primary_caps": 1, "decoder": False}


def tiny_model() -> tc.models.Model:
    return tc.models.create("sabour2017_mnist", **TINY)


def with_metadata(state: dict[str, Any], metadata: dict[str, str]) -> bytes:
    return encode_tensors(state, {"format": FORMAT, "sha256": checksum(state)} | metadata)


def hostile_config(random: random.Random, state: dict[str, Any]) -> bytes:
    """A header that asks for any model with any sizes, over tensors that are whole."""
    name = random.choice((NAMES[0], *NAMES, "nothing"))
    share = random.choice((0.05, 0.3))  # of fields that are made up
    config = {} if name == "nothing" else vars(tc.models.entry(name).config)
    if name == NAMES[0]:
        config = config | TINY  # so that some of them get as far as their weights
    written: Any = {field: random.choice(VALUES) if random.random() < share else config[field] for field in config}
    metadata = {"model": json.dumps({"name": name, "config": random.choice((written, written, written, None, []))})}
    for key in ("classes", "preprocessing", "loss", "input_shape", "model"):
        if random.random() < share / 2:
            metadata[key] = random.choice(
                ("", "[", "[" * 5000, "{}", "null", '["a", "a"]', json.dumps(random.choice(VALUES)))
            )
    return with_metadata(state, metadata)


def broken_bytes(random: random.Random, content: bytes) -> bytes:
    """A file with some bytes changed, cut off or put in twice."""
    changed = bytearray(content)
    for _ in range(random.randint(1, 8)):
        place = random.randrange(len(changed))
        kind = random.randrange(4)
        if kind == 0:
            changed[place] ^= 1 << random.randrange(8)
        elif kind == 1:
            changed[place] = random.randrange(256)
        elif kind == 2 and place:
            del changed[place:]
        else:
            changed[place:place] = changed[place : place + random.randint(1, 64)]
    return bytes(changed)


def fuzz(
    seconds: float, seed: int = 0, most: int | None = None, load: Callable[[Path], object] = tc.models.load
) -> Counter:
    """Read made-up files for so long (or so many); how many loaded and how many were refused."""
    chosen, counts = random.Random(seed), Counter()
    model = tiny_model()
    state = model.state_dict()
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        tc.models.save(model, path, tc.models.Training(tuple("0123456789")))
        whole = path.read_bytes()
        load(path)  # what the first one imports is not what a file takes
        before = peak()
        while time.monotonic() < end and (most is None or counts.total() < most):
            content = chosen.choice((hostile_config(chosen, state), broken_bytes(chosen, whole)))
            path.write_bytes(content)
            try:
                load(path)
                counts["loaded"] += 1
            except ValueError as error:
                counts["refused" if str(path) in str(error) else f"refused without the file's name: {error}"] += 1
    grown = (peak() - before) / 1024
    assert grown < MEBIBYTES, f"memory grew by {grown:.0f} MiB"
    assert counts.keys() <= {"loaded", "refused"}, counts
    return counts


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    found = fuzz(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(f"model files: {found.total():,} read, {found['refused']:,} refused, {found['loaded']:,} loaded, 0 failed")
