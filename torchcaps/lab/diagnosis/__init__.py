"""Why a network does not learn: what is measured, what is healthy, and the remedy.

``diagnose(model, batch)`` gives a ``Diagnosis``; ``CHECKS`` are the symptoms it knows.
"""

from torchcaps.lab.diagnosis.checks import CHECKS
from torchcaps.lab.diagnosis.diagnosis import Diagnosis, diagnose
from torchcaps.lab.diagnosis.findings import Check, Finding, Measurements

__all__ = ["CHECKS", "Check", "Diagnosis", "Finding", "Measurements", "diagnose"]
