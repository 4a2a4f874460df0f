"""The campaign: the papers' claims held against runs on this machine, by one command that can be stopped and goes on.

``PLAN`` is what there is to do, ``Campaign`` does it, and ``results_page`` writes the page.
"""

from reproduction.base import Item, Job, PaperClaim, Point, Study
from reproduction.comparison import comparison_table
from reproduction.page import claims_table, results_page
from reproduction.paths import RecordPaths
from reproduction.plan import PLAN
from reproduction.running import Campaign, choose, in_order
from reproduction.verdicts import Verdict, judge

__all__ = [
    "PLAN",
    "Campaign",
    "Item",
    "Job",
    "PaperClaim",
    "Point",
    "RecordPaths",
    "Study",
    "Verdict",
    "choose",
    "claims_table",
    "comparison_table",
    "in_order",
    "judge",
    "results_page",
]
