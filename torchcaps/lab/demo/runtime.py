"""The files of onnxruntime-web, which run the network in the browser: pinned to a version and to checksums.

They come from its npm package, are kept in the user's cache directory, and are part of no repository and no wheel.
"""

import base64
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from torchcaps.data.archives import unpack
from torchcaps.data.base import DataError
from torchcaps.data.files import cache_dir, sha256

PACKAGE = "onnxruntime-web@1.30.0"
INTEGRITY = "sha512-q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
SHA256 = {
    "ort.wasm.bundle.min.mjs": "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
    "ort-wasm-simd-threaded.wasm": "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
}
UNPACKED_LIMIT = 1 << 28  # bytes; the package unpacks to 150 MB
PATIENCE = 600  # seconds for npm


def find_runtime(given: Path | None = None) -> Path:
    """The folder with the runtime's files: of the package folder or tarball that is given, else from the user's cache
    directory, where npm puts them the first time."""
    cache = cache_dir() / PACKAGE
    if given is not None and given.is_dir():
        found = next((place for place in (given, given / "dist", given / "package" / "dist") if _is_there(place)), None)
        if found is None:
            raise DataError(f"{given} does not hold {' and '.join(SHA256)}; give the package folder of {PACKAGE}")
        return check_runtime(found)
    if given is not None:
        return _unpack(given, cache)
    if _is_there(cache):
        return check_runtime(cache)
    with tempfile.TemporaryDirectory() as folder:
        return _unpack(_fetch(Path(folder)), cache)


def check_runtime(folder: Path) -> Path:
    """Hold the runtime's files to their checksums."""
    for name, expected in SHA256.items():
        found = sha256(folder / name)
        if found != expected:
            raise DataError(
                f"{folder / name} is not the file of {PACKAGE}: its SHA-256 is {found}, not {expected}; delete it and "
                "run this again"
            )
    return folder


def _is_there(folder: Path) -> bool:
    return all((folder / name).is_file() for name in SHA256)


def _fetch(folder: Path) -> Path:
    """The package's tarball, by npm."""
    by_hand = f"on any machine with npm, run `npm pack {PACKAGE}`, and give the file that it writes as --runtime"
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(f"the page needs {PACKAGE}, and npm, which fetches it, is not installed; {by_hand}")
    command = [npm, "pack", PACKAGE, "--silent", "--ignore-scripts", "--pack-destination", str(folder)]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise DataError(f"npm did not fetch {PACKAGE} within {PATIENCE} seconds; {by_hand}") from error
    found = sorted(folder.glob("*.tgz"))
    if done.returncode != 0 or len(found) != 1:
        said = " ".join(done.stderr.split())[-200:]
        raise DataError(f"npm could not fetch {PACKAGE} ({said or 'it says nothing'}); {by_hand}")
    return found[0]


def _unpack(tarball: Path, cache: Path) -> Path:
    """The runtime's files of a tarball in the cache, held to the checksum that npm publishes."""
    if not tarball.is_file():
        raise DataError(f"{tarball}: no such file or folder; `npm pack {PACKAGE}` writes a tarball")
    with tarball.open("rb") as file:
        found = "sha512-" + base64.b64encode(hashlib.file_digest(file, "sha512").digest()).decode()
    if found != INTEGRITY:
        raise DataError(f"{tarball} is not {PACKAGE}: its integrity is {found}, not {INTEGRITY}")
    with tempfile.TemporaryDirectory() as folder:
        wanted = {f"package/dist/{name}" for name in SHA256}
        unpack(tarball, Path(folder), UNPACKED_LIMIT, wanted=wanted.__contains__)
        check_runtime(Path(folder) / "package" / "dist")
        cache.mkdir(parents=True, exist_ok=True)
        for name in SHA256:
            shutil.move(Path(folder) / "package" / "dist" / name, cache / name)
    return cache
