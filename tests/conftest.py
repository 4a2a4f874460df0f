"""Shape annotations are checked at run time in the tests, unless TORCHCAPS_PLAIN asks for the package as it is."""

import os

import torch
from jaxtyping import install_import_hook

if not os.environ.get("TORCHCAPS_PLAIN"):
    install_import_hook("torchcaps", "beartype.beartype")

# Test processes run side by side; more threads in each would only fight.
torch.set_num_threads(1)
