"""Compile the kernels: ``python torchcaps/kernels/build.py``, or as a part of building the package.

Uses nothing but the standard library, since the build of the package has nothing else.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
SOURCE = FOLDER / "kernels.c"  # includes the others
LIBRARY = FOLDER / "_kernels.so"
# As fast as -O3, and compiled in a fraction of the time: the loops to unroll say so themselves.
FLAGS = [
    "-O2",
    "-std=gnu11",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fPIC",
    "-shared",
]
FLAGS += ["-fvisibility=hidden", "-pthread", "-fopenmp-simd", "-Wno-psabi"]


def compile_kernels(library: Path = LIBRARY, compiler: str | None = None) -> str:
    """Compile the source to a library; returns what went wrong, or an empty string. There is no harm in a failure."""
    wanted = compiler or os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    command = next((words for words in (shlex.split(wanted), ["cc"], ["gcc"]) if words and shutil.which(words[0])), [])
    if compiler is not None and command != shlex.split(compiler):
        command = []
    if not command:
        return f"no C compiler {wanted!r}"
    problem = ""
    # Compilers without multi-versioning of functions make code for one kind of processor, the oldest.
    for further in ([], ["-DTORCHCAPS_ONE_TARGET"]):
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / library.name
            words = [*command, *FLAGS, *further, "-o", str(made), str(SOURCE), "-lm"]
            try:
                done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False)
            except (OSError, subprocess.TimeoutExpired) as error:
                return f"{shlex.join(command)}: {error}"
            if done.returncode == 0:
                # Beside the target and then in its place: whoever has the old library open keeps it.
                beside = library.with_suffix(".new")
                shutil.copyfile(made, beside)
                beside.replace(library)
                return ""
            problem = f"{shlex.join(words)} ended with {done.returncode}: {done.stderr[-400:]}"
    return problem


def is_up_to_date(library: Path = LIBRARY) -> bool:
    """Whether there is a library that was made of the sources as they are."""
    made_of = max(path.stat().st_mtime for path in (*FOLDER.glob("*.c"), Path(__file__)))
    return library.exists() and library.stat().st_mtime > made_of


if __name__ == "__main__":
    failure = compile_kernels()
    print(failure or f"compiled {LIBRARY}")
    sys.exit(bool(failure))
