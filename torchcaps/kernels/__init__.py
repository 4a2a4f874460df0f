"""Native kernels: the inner loops of votes by a weight for each pair, and of squash, in C (``kernels.c``).

They are compiled when the package is built, where there is a C compiler. Without them everything works, in PyTorch's
own operations. Beside them stands what all fast paths need: buffers that stay warm (``workspace.py``), what PyTorch is
doing around a call (``modes.py``), and threads that give way on a busy machine (``waiting.py``). Set the
environment variable ``TORCHCAPS_KERNELS`` to ``off`` to do without.
"""

from torchcaps.kernels.library import available, take_kernels, without_kernels

__all__ = ["available", "take_kernels", "without_kernels"]
