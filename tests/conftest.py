"""Shapes in signatures are checked while tests run, unless TORCHCAPS_PLAIN is set: then as users run the code."""

import os

import jaxtyping
import torch

# Before anything imports torchcaps: the hook works on modules as they are loaded.
if not os.environ.get("TORCHCAPS_PLAIN"):
    jaxtyping.install_import_hook("torchcaps", "beartype.beartype")

torch.set_num_threads(1)
