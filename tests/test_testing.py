"""The public assertions: every routing of the package passes them, and planted faults do not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torchcaps import routing
from torchcaps.capsules import Capsules
from torchcaps.routing import ROUTINGS, Routing, Trace, reference, rising_inverse_temperature
from torchcaps.testing import assert_absent_children_ignored, check_routing
from torchcaps.votes import tensor_votes


def refer_inverted_attention(votes: Tensor, score: Tensor, **learned: Tensor) -> Capsules:
    def norm(pose: Tensor) -> Tensor:
        return torch.nn.functional.layer_norm(pose, (4,), learned["norm.weight"], learned["norm.bias"])

    first = reference.inverted_attention_step(votes, norm=norm, scale=0.5)
    return Capsules(reference.inverted_attention_step(votes, first, norm=norm, scale=0.5))


def refer_self_routing(votes: Tensor, score: Tensor, pose: Tensor, **learned: Tensor) -> Capsules:
    logits = torch.einsum("bid,ijd->bij", pose, learned["logit_weight"].expand(7, -1, -1)) + learned["logit_bias"]
    return reference.self_routing(votes, score, logits=logits)


def refer_vb(votes: Tensor, score: Tensor, beta_use: Tensor, beta_active: Tensor) -> Capsules:
    found = reference.vb_routing(votes, score, beta_use=beta_use, beta_active=beta_active)
    pose, parent_score, variance = found
    assert parent_score is not None
    scale = (1 + 1e-5) ** -0.5  # of a batch norm that has seen no batch
    return Capsules(pose * scale, parent_score * scale, variance)


REFERENCES: dict[str, Callable[..., Any]] = {
    "dynamic": lambda votes, score: reference.dynamic_routing(votes),
    "fixed_point": lambda votes, score: reference.fixed_point_routing(votes),
    "em": lambda votes, score, **betas: reference.em_routing(
        votes, score, inverse_temperature=rising_inverse_temperature(3), eps=5e-4, **betas
    ),
    "heinsen": lambda votes, score, **betas: reference.heinsen_routing(
        votes, score, **{name: beta.expand(7, -1) for name, beta in betas.items()}
    ),
    "inverted_attention": refer_inverted_attention,
    "fm": lambda votes, score: reference.fm_agreement(votes),
    "self_attention": lambda votes, score, prior: reference.self_attention_routing(votes, prior=prior.expand(7, -1)),
    "uniform": lambda votes, score: reference.uniform_routing(votes),
    "self_routing": refer_self_routing,
    "vb": refer_vb,
}


@pytest.mark.parametrize("name", ROUTINGS)
def test_every_routing_passes(name: str) -> None:
    check_routing(name, REFERENCES[name])


class Plain(Routing):
    """One even mix of the votes; subclasses plant faults."""

    iterates = False
    reads_scores = False
    gives_scores = False
    fault = ""

    def forward(self, votes: Any, score: Any = None, *, trace: Trace | None = None) -> Capsules:
        votes = tensor_votes(votes)
        coupling = torch.full(votes.shape[:-1], 1.0 / votes.parents, dtype=votes.dtype)
        if self.fault == "order":
            coupling = coupling * torch.arange(votes.children)[:, None]
        pose = votes.mix(coupling)
        if self.fault == "batch":
            pose = pose - pose.mean(0)
        if trace is not None:
            trace.record(votes, 2.0 * coupling if self.fault == "sum" else coupling, pose, None)
        return Capsules(pose, pose.sum(-1) if self.fault == "score" else None)


@pytest.mark.parametrize(
    ("fault", "message"),
    [("order", "relative error"), ("batch", "relative error"), ("sum", "relative error"), ("score", "gives_scores")],
)
def test_planted_faults_are_found(fault: str, message: str) -> None:
    check_routing(Plain)
    with pytest.raises(AssertionError, match=message):
        check_routing(type("Faulty", (Plain,), {"fault": fault}))


def test_a_routing_that_hears_absent_children_is_found() -> None:
    votes, score = torch.randn(2, 7, 3, 4, dtype=torch.float64), torch.zeros(2, 7, dtype=torch.float64)
    with pytest.raises(AssertionError, match="relative error"):
        assert_absent_children_ignored(
            lambda votes, score: routing.dynamic_routing(votes), [votes, score], ["b i j p", "b i"]
        )


def test_a_reference_that_differs_is_found() -> None:
    with pytest.raises(AssertionError, match="relative error"):
        check_routing("dynamic", lambda votes, score: reference.dynamic_routing(votes, num_iters=2))
