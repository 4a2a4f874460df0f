"""onnxruntime, asked only where it is needed, and its errors in our words."""

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from torchcaps.extras import explain_missing

LARGEST_FILE = (1 << 31) - 1  # bytes: what the format itself allows
WARNINGS_AND_WORSE, ERRORS_AND_WORSE = 2, 3


def need(package: str, what: str) -> Any:
    """A package of the extra ``export``, or what to install."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(explain_missing(error, what) or str(error), name=error.name) from error


def open_session(content: bytes, name: str, threads: int = 0) -> Any:
    """A file's network, ready to run on the CPU; ``ValueError`` where it is none that onnxruntime takes."""
    onnxruntime = need("onnxruntime", "running ONNX files")
    if len(content) > LARGEST_FILE:
        raise ValueError(f"{name} has {len(content):,} bytes; an ONNX file has at most {LARGEST_FILE:,}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = ERRORS_AND_WORSE
    options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # it has a class of errors for each kind of damage
        raise ValueError(f"{name} is no ONNX file that onnxruntime can run: {_first_line(error)}") from error


def run_session(session: Any, inputs: Mapping[str, np.ndarray], name: str) -> list[np.ndarray]:
    """All outputs of a network for these inputs."""
    try:
        return session.run(None, dict(inputs))
    except Exception as error:
        raise ValueError(f"{name}: onnxruntime stopped: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
