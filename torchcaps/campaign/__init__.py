"""The campaign: the papers' claims held against runs on this machine, by one command that can be stopped and goes on.

``PLAN`` is what there is to do, ``Campaign`` does it, and ``results_page`` says what came out.
"""

from torchcaps.campaign.base import Claim, Item, Job, Point, Study
from torchcaps.campaign.page import claims_table, results_page
from torchcaps.campaign.places import Places
from torchcaps.campaign.plan import PLAN
from torchcaps.campaign.running import Campaign, chosen, in_order
from torchcaps.campaign.stage import stage_table
from torchcaps.campaign.verdicts import Verdict, judge

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
