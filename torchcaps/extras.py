"""Packages that only some of the library needs: which extra brings them, in one line for whoever lacks one."""

EXTRAS = {
    **dict.fromkeys(("tyro", "rich", "matplotlib", "PIL", "requests", "urllib3", "filelock", "tensorboard"), "lab"),
    **dict.fromkeys(("onnx", "onnxruntime", "onnxscript"), "export"),
    **dict.fromkeys(("transformers", "tokenizers"), "text"),
    "sklearn": "sklearn",
    "huggingface_hub": "hub",
    **dict.fromkeys(("timm", "torchvision"), "timm"),
}
PACKAGES = {
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "huggingface_hub": "huggingface-hub",
}  # that are called otherwise than their module


def explain_missing(error: ImportError, what: str = "this") -> str | None:
    """What to install for an import that failed; ``None`` if none of the extras would help.

    >>> explain_missing(ModuleNotFoundError(name="matplotlib.figure"), "torchcaps explain")
    "torchcaps explain needs matplotlib, which is not installed; run: pip install 'torchcaps[lab]'"
    """
    module = (error.name or "").partition(".")[0]
    if module not in EXTRAS:
        return None
    package = PACKAGES.get(module, module)
    return f"{what} needs {package}, which is not installed; run: pip install 'torchcaps[{EXTRAS[module]}]'"
