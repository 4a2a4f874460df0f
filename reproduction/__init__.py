"""The campaign: the papers' claims held against runs on this machine, by one command that can be stopped and goes on.

``PLAN`` is what there is to do, ``Campaign`` does it, and ``results_page`` writes the page.
"""

from reproduction.base import Claim, Item, Job, Point, Study
from reproduction.page import claims_table, results_page
from reproduction.places import Places
from reproduction.plan import PLAN
from reproduction.running import Campaign, chosen, in_order
from reproduction.stage import stage_table
from reproduction.verdicts import Verdict, judge

__all__ = [
    "PLAN",
    "Campaign",
    "Claim",
    "Item",
    "Job",
    "Places",
    "Point",
    "Study",
    "Verdict",
    "chosen",
    "claims_table",
    "in_order",
    "judge",
    "results_page",
    "stage_table",
]
