"""Every routing with its options, as pairs (ours, reference) over votes, scores and parameters."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from tests.support import numbers
from torchcaps import routing
from torchcaps.routing import reference

AXES = {
    "prior": "i j",
    "bias": "j p",
    "beta_cost": "j",
    "beta_active": "j",
    "beta_use": "i j",
    "beta_ignore": "i j",
    "parents": "b j p",
    "logits": "b i j",
}
LAMBDAS = (0.3, 0.6, 0.9)


@dataclass(frozen=True)
class RoutingCase:
    """How to call a routing and its reference with the same arguments."""

    name: str
    ours: Callable[..., Any]
    judge: Callable[..., Any]
    parameters: tuple[str, ...] = ()  # names of learned arguments
    scored: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    centered: bool = False  # whether the routing is indifferent to the origin
    letters: dict[str, str] = field(default_factory=dict)  # axes of parameters that differ from those of others

    def axes_of(self, parameter: str) -> str:
        """The letters of a parameter."""
        return self.letters.get(parameter, AXES[parameter])

    def tensors(
        self, batch: tuple[int, ...], i: int, j: int, p: int, dtype: torch.dtype = torch.float64
    ) -> list[Tensor]:
        """The tensors after the votes: scores, then parameters."""
        sizes = {"b": batch, "i": (i,), "j": (j,), "p": (p,)}
        shapes = [[size for letter in self.axes_of(name).split() for size in sizes[letter]] for name in self.parameters]
        scores = [numbers(*batch, i, seed=1)] if self.scored else []
        return scores + [numbers(*shape, seed=k + 2) for k, shape in enumerate(shapes)]

    @property
    def num_iters(self) -> int:
        """How many iterations it makes; a routing without the option makes one."""
        iterates = "num_iters" in signature(self.ours).parameters
        return self.options.get("num_iters", 3) if iterates else 1

    @property
    def axes(self) -> list[str]:
        """The letters of the votes and of all other tensors, as ``torchcaps.testing`` wants them."""
        return ["b i j p", *(["b i"] if self.scored else []), *(self.axes_of(name) for name in self.parameters)]

    def call(self, function: Callable[..., Any], votes: Any, *tensors: Tensor, **more: Any) -> list[Tensor | None]:
        score = tensors[:1] if self.scored else ()
        named = dict(zip(self.parameters, tensors[len(score) :], strict=True))
        result = function(votes, *score, **named, **self.options, **more)
        return [result] if isinstance(result, Tensor) else list(result)

    def run(self, votes: Any, *tensors: Tensor, **more: Any) -> list[Tensor | None]:
        return self.call(self.ours, votes, *tensors, **more)

    def refer(self, votes: Any, *tensors: Tensor, **more: Any) -> list[Tensor | None]:
        return self.call(self.judge, votes, *tensors, **more)


def _dynamic(name: str, *parameters: str, **options: Any) -> RoutingCase:
    return RoutingCase(name, routing.dynamic_routing, reference.dynamic_routing, parameters, options=options)


def _fixed_point(name: str, *parameters: str, **options: Any) -> RoutingCase:
    # The votes of the tests are large and random: a small β spares the reference hundreds of iterations.
    ours, judge = routing.fixed_point_routing, reference.fixed_point_routing
    return RoutingCase(name, ours, judge, parameters, options={"inverse_temperature": 0.01} | options)


def _em(name: str, **options: Any) -> RoutingCase:
    options = {"inverse_temperature": LAMBDAS, "eps": 1e-3} | options
    betas = ("beta_cost", "beta_active")
    return RoutingCase(name, routing.em_routing, reference.em_routing, betas, True, options, centered=True)


def _heinsen(name: str, **options: Any) -> RoutingCase:
    betas = ("beta_use", "beta_ignore")
    return RoutingCase(name, routing.heinsen_routing, reference.heinsen_routing, betas, True, options, centered=True)


def _attention(name: str, *parameters: str, **options: Any) -> RoutingCase:
    ours, judge = routing.inverted_attention_step, reference.inverted_attention_step
    return RoutingCase(name, ours, judge, parameters, options={"scale": 0.4} | options)


def _fm(name: str, **options: Any) -> RoutingCase:
    return RoutingCase(name, routing.fm_agreement, reference.fm_agreement, options=options)


def _self_attention(name: str, *parameters: str, **options: Any) -> RoutingCase:
    ours, judge = routing.self_attention_routing, reference.self_attention_routing
    return RoutingCase(name, ours, judge, parameters, options=options)


def _uniform(name: str, **options: Any) -> RoutingCase:
    return RoutingCase(name, routing.uniform_routing, reference.uniform_routing, options=options)


def _self_routing(name: str, **options: Any) -> RoutingCase:
    return RoutingCase(name, routing.self_routing, reference.self_routing, ("logits",), True, options)


def _vb(name: str, **options: Any) -> RoutingCase:
    return RoutingCase(
        name,
        routing.vb_routing,
        reference.vb_routing,
        ("beta_use", "beta_active"),
        True,
        options,
        letters={"beta_use": "j"},
    )


_unit_norm = partial(torch.nn.functional.layer_norm, normalized_shape=(4,))

CASES = [
    _dynamic("dynamic"),
    _dynamic("dynamic-1", num_iters=1),
    _dynamic("dynamic-prior", "prior"),
    _dynamic("dynamic-bias", "bias"),
    _dynamic("dynamic-orphan", orphan=True),
    _dynamic("dynamic-orphan-1", num_iters=1, orphan=True),
    _dynamic("dynamic-all", "prior", "bias", orphan=True, num_iters=4),
    _dynamic("dynamic-constant-couplings", coupling_gradient=False),
    _dynamic("dynamic-exponential", squash="exponential"),
    _fixed_point("fixed-point"),
    _fixed_point("fixed-point-all", "prior", "bias", orphan=True, inverse_temperature=0.2),
    _fixed_point("fixed-point-exponential", squash="exponential"),
    _fixed_point(
        "fixed-point-exponential-all", "prior", "bias", orphan=True, inverse_temperature=0.2, squash="exponential"
    ),
    _em("em"),
    _em("em-1", num_iters=1, inverse_temperature=LAMBDAS[:1]),
    _em("em-tight", eps=1e-8),
    _heinsen("heinsen"),
    _heinsen("heinsen-1", num_iters=1),
    _heinsen("heinsen-kmeans", model="kmeans"),
    _heinsen("heinsen-eps", eps=1e-2),
    _attention("attention-first"),
    _attention("attention", "parents"),
    _attention("attention-norm", "parents", norm=_unit_norm),
    _fm("fm"),
    _fm("fm-sum", unit_pose=False),
    _fm("fm-plain", normalize=False),
    _fm("fm-plain-sum", normalize=False, unit_pose=False),
    _self_attention("self-attention", "prior"),
    _self_attention("self-attention-without-prior"),
    _self_attention("self-attention-rational", "prior", squash="rational"),
    _uniform("uniform"),
    _uniform("uniform-children", over="children"),
    _self_routing("self-routing"),
    _vb("vb"),
    _vb("vb-1", num_iters=1),
    _vb("vb-prior", prior_alpha=0.5, prior_kappa=0.2, prior_nu=6.5, prior_mean=0.3, prior_psi=0.1, start="types"),
]
BY_NAME = {case.name: case for case in CASES}
MAIN_NAMES = ("dynamic", "em", "heinsen", "heinsen-kmeans", "attention", "fm", "self-attention", "uniform")
MAIN = [BY_NAME[name] for name in (*MAIN_NAMES, "fixed-point", "self-routing", "vb")]
ON_A_GRID = [case for case in MAIN if case.name != "heinsen-kmeans"]
ON_A_GRID += [BY_NAME[name] for name in ("dynamic-orphan", "attention-first", "uniform-children", "vb-prior")]
