"""Self-routing and variational Bayes routing refuse bad input with errors that say what would be right."""

import os
from typing import Any, cast

import pytest
import torch

import torchcaps as tc
from torchcaps.norms import PoseNorm
from torchcaps.routing import (
    SelfRouting,
    VBRouting,
    VoteShape,
    dynamic_routing,
    em_routing,
    fixed_point_routing,
    heinsen_routing,
    self_attention_routing,
    self_routing,
    vb_routing,
)
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
        ({"prior_kappa": 0.0}, "prior_kappa is above 0 and finite; got prior_kappa=0.0"),
        ({"prior_kappa": float("inf")}, "prior_kappa is above 0 and finite; got prior_kappa=inf"),
        ({"prior_psi": float("nan")}, "prior_psi is above 0 and finite; got prior_psi=nan"),
        ({"prior_alpha": -1.0}, "prior_alpha is above 0"),
        ({"prior_alpha": "1"}, "prior_alpha is above 0 and finite; got prior_alpha='1'"),
        ({"prior_mean": float("inf")}, "prior_mean is a finite number; got prior_mean=inf"),
        ({"prior_mean": [0.0]}, r"prior_mean is a finite number; got prior_mean=\[0.0\]"),
        ({"prior_nu": 3.0}, "prior_nu is above p - 1, 3 for poses of 4 numbers, and finite; got prior_nu=3.0"),
        ({"prior_nu": float("inf")}, "and finite; got prior_nu=inf"),
        ({"start": "even"}, "no start 'even'; there are 'seen' and 'types'"),
    ]
    for options, message in wrong:
        with pytest.raises(ValueError, match=message):
            vb_routing(votes, None, beta_use=beta, beta_active=beta, **options)
        with pytest.raises(ValueError, match=message):
            VBRouting(**options, sizes=VoteShape(7, 3, 4))
        if options != {"prior_nu": 3.0}:  # enough for poses of another size
            with pytest.raises(ValueError, match=message.partition(", 3")[0]):
                VBRouting(**options)
    with pytest.raises(ValueError, match="prior_nu is above p - 1, at least 0, and finite"):
        VBRouting(prior_nu=0.0)
    with pytest.raises(ValueError, match="in_caps=7, no multiple of places=4"):
        tc.DenseCapsules(7, 4, 3, 4, "vb", places=4)
    with pytest.raises(ValueError, match="needs a fixed number of parents"):
        tc.DenseCapsules(None, 4, None, 4, "em", pose_norm="type")
    with pytest.raises(ValueError, match="no norm per 'capsule'; there are 'component' and 'type'"):
        PoseNorm(3, 4, per="capsule")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"poses \(\*b, 3, 4\) are normalized; got shape \(2, 4, 4\)"):
        PoseNorm(3, 4)(tc.Capsules(torch.zeros(2, 4, 4)))


def test_what_is_no_tensor() -> None:
    votes, beta, anything = torch.randn(2, 7, 3, 4), torch.zeros(3), cast(Any, None)
    for route in (dynamic_routing, fixed_point_routing, self_attention_routing):
        for given in (0.5, [[0.0]]):
            with pytest.raises(ValueError, match=r"prior is a tensor of shape \(7, 3\) or None; got prior=[0\[]"):
                route(votes, prior=cast(Any, given))
    with pytest.raises(ValueError, match=r"bias is a tensor of shape \(3, 4\) or None; got bias=1.0"):
        dynamic_routing(votes, bias=cast(Any, 1.0))
    with pytest.raises(ValueError, match=r"logits is a tensor of shape \(2, 7, 3\); got logits=None"):
        self_routing(votes, None, logits=anything)
    with pytest.raises(ValueError, match=r"beta_use is a tensor of shape \(3,\); got beta_use=None"):
        vb_routing(votes, None, beta_use=anything, beta_active=beta)
    with pytest.raises(ValueError, match=r"beta_active is a tensor of shape \(3,\); got beta_active=0.0"):
        em_routing(votes, None, beta_cost=beta, beta_active=cast(Any, 0.0))
    with pytest.raises(ValueError, match=r"beta_ignore is a tensor of shape \(7, 3\); got beta_ignore=None"):
        heinsen_routing(votes, None, beta_use=torch.zeros(7, 3), beta_ignore=anything)
