"""``python -m torchcaps`` is the command ``torchcaps``."""

import sys

from torchcaps.cli import main

sys.exit(main())
