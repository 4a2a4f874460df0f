"""A small trained model that comes with the package: a run folder with a recipe, a record and weights, no more.

``torchcaps predict shipped IMAGE`` and ``torchcaps explain shipped`` work with it before anything is trained.
``shipped.json`` names the record among the results; the weights are stored as float16 and used as float32.
"""

from pathlib import Path

FOLDER = Path(__file__).parent
