"""Self-routing and variational Bayes routing refuse bad input with errors that say what would be right."""

import os
from typing import Any

import pytest
import torch

import torchcaps as tc
from torchcaps.norms import PoseNorm
from torchcaps.routing import SelfRouting, VoteShape, self_routing, vb_routing
from torchcaps.votes import tensor_votes

pytestmark = pytest.mark.skipif(
    not os.environ.get("TORCHCAPS_PLAIN"), reason="run with TORCHCAPS_PLAIN=1: shape checks would be first to complain"
)


def test_self_routing() -> None:
    votes = torch.randn(2, 7, 3, 4)
    with pytest.raises(ValueError, match=r"logits of shape \(2, 7, 2\); expected \(2, 7, 3\)"):
        self_routing(votes, None, logits=torch.zeros(2, 7, 2))
    with pytest.raises(ValueError, match=r"a tensor of votes has none; give tensor_votes\(votes, pose\)"):
        SelfRouting(sizes=VoteShape(7, 3, 4))(votes)
    with pytest.raises(ValueError, match="poses of 5 numbers; this routing is for 4"):
        SelfRouting(sizes=VoteShape(7, 3, 4))(tensor_votes(votes, torch.randn(2, 7, 5)))
    with pytest.raises(ValueError, match=r"pose of shape \(2, 6, 4\); expected \(2, 7\) and the size of a pose"):
        tensor_votes(votes, torch.randn(2, 6, 4))
    with pytest.raises(ValueError, match="go with a tensor of votes"):
        tensor_votes(tensor_votes(votes), torch.randn(2, 7, 4))
    with pytest.raises(ValueError, match="no logits from 'scores'; there are 'poses' and 'votes'"):
        SelfRouting(logits="scores")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="single numbers; got poses of 4: give out_pose=1"):
        tc.DenseCapsules(6, 4, 3, 4, SelfRouting(logits="votes"))


def test_variational_bayes_and_norms() -> None:
    votes, beta = torch.randn(2, 7, 3, 4), torch.zeros(3)
    for name in ("beta_use", "beta_active"):
        given: dict[str, Any] = {"beta_use": beta, "beta_active": beta} | {name: torch.zeros(7, 3)}
        with pytest.raises(ValueError, match=rf"{name} of shape \(7, 3\); expected \(3,\)"):
            vb_routing(votes, None, **given)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"num_iters": 0}, "at least one iteration"),
        ({"prior_kappa": 0.0}, "prior_kappa is above 0; got prior_kappa=0.0"),
        ({"prior_psi": float("nan")}, "prior_psi is above 0"),
        ({"prior_alpha": -1.0}, "prior_alpha is above 0"),
        ({"prior_nu": 3.0}, "prior_nu is above p - 1, 3 for poses of 4 numbers; got prior_nu=3.0"),
        ({"start": "even"}, "no start 'even'; there are 'seen' and 'types'"),
    ]
    for options, message in wrong:
        with pytest.raises(ValueError, match=message):
            vb_routing(votes, None, beta_use=beta, beta_active=beta, **options)
    with pytest.raises(ValueError, match="in_caps=7, no multiple of places=4"):
        tc.DenseCapsules(7, 4, 3, 4, "vb", places=4)
    with pytest.raises(ValueError, match="needs a fixed number of parents"):
        tc.DenseCapsules(None, 4, None, 4, "em", pose_norm="type")
    with pytest.raises(ValueError, match="no norm per 'capsule'; there are 'component' and 'type'"):
        PoseNorm(3, 4, per="capsule")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"poses \(\*b, 3, 4\) are normalized; got shape \(2, 4, 4\)"):
        PoseNorm(3, 4)(tc.Capsules(torch.zeros(2, 4, 4)))
