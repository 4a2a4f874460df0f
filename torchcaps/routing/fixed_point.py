"""Fixed-point routing: dynamic routing iterated until it stops changing, with gradients of the solution itself.

Tsai and others (ICLR 2020) name infinitely many iterations as future work. Sabour's own iteration has no fixed point,
because its logits accumulate; the equation solved here and its relation to Sabour's are in docs/fixed-point.md.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import Capsules
from torchcaps.kernels.modes import must_be_traceable
from torchcaps.routing.base import Routing, Trace, VoteShape, check_broadcasts
from torchcaps.routing.equilibrium import SLOPES, RoutingEquation, SolutionLimits
from torchcaps.squashing import squash_to_capsules
from torchcaps.votes import Votes, tensor_votes


def fixed_point_routing(
    votes: Votes | Float[Tensor, "*b i j p"],
    *,
    max_iters: int = 100,
    tolerance: float | None = None,
    anderson: int = 5,
    inverse_temperature: float = 1.0,
    prior: Float[Tensor, "#i #j"] | None = None,
    bias: Float[Tensor, "#j #p"] | None = None,
    orphan: bool = False,
    squash: str = "rational",
    adjoint_iters: int | None = None,
    adjoint_tolerance: float | None = None,
    check_every: int | None = None,
    traced_iters: int = 20,
    trace: Trace | None = None,
) -> Capsules:
    """Route until couplings and parents agree: the limit of dynamic routing whose logits do not accumulate.

    It solves ``s_j = Σ_i c_ij v_ij`` with ``c_ij = softmax_j(β ⟨v_ij, squash(s_j)⟩)`` for all parents at once, from the
    equal couplings that dynamic routing starts with. Sabour's own iteration adds every agreement to the logits, which
    therefore grow without end and leave no fixed point but couplings of zero and one; this equation takes the agreement
    for the logit. Two iterations of both are the same.

    Gradients are those of the solution, by the implicit function theorem: one linear equation, solved like the first,
    and the gradient of a single iteration, which is all that memory holds. Where an example does not converge within
    ``max_iters``, or its linear equation within ``adjoint_iters``, a warning says so, and its gradient is that of a
    single iteration at its result. Second derivatives differentiate the iterations of the linear equation, and hold
    them all; so do many gradients at once (``jacobian(vectorize=True)``) with ``adjoint_iters`` further iterations.

    Args:
        votes: an operator, or a tensor of votes.
        max_iters: iterations at most, of which the first has equal couplings.
        tolerance: largest change of s by an iteration, relative to its largest number, at which an example has
            converged; the machine epsilon to the power 3/4 if left out (6e-6 in single precision).
        anderson: how many earlier iterations Anderson acceleration combines; 0 is plain iteration.
        inverse_temperature: β: how much agreement decides. Sabour's couplings after n iterations sum up n - 1
            agreements, so that they are about as sharp as these at β = n - 1.
        prior: logits that are added to the agreement; zero if left out.
        bias: added to each parent's input s_j.
        orphan: whether a child may also belong to none of the parents.
        squash: how the sum of the votes becomes a pose, ``"rational"`` or ``"exponential"``
            (``torchcaps.squashing.SQUASHES``).
        adjoint_iters: iterations of the backward pass at most; ``max_iters`` if left out.
        adjoint_tolerance: tolerance of the backward pass; that of the forward pass if left out.
        check_every: after how many iterations to look whether all examples have converged; if left out, after each on
            CPUs and never elsewhere, because a look makes the host wait for the device. Results do not depend on it,
            but without a look all ``max_iters`` are made and no warning is given.
        traced_iters: the number of plain iterations in compiled and exported programs and under function transforms,
            where nobody can look at numbers; gradients pass through all of them.
        trace: filled with the solution: one entry.

    Shape:
        - votes: ``(*b, i, j, p)``; prior: ``(i or 1, j or 1)``; bias: ``(j or 1, p or 1)``.
        - result: poses ``(*b, j, p)``, scores ``(*b, j)``.

    Returns:
        The parents; a score is the logit of its pose's length.

    Example:
        >>> from torchcaps.capsules import squash
        >>> votes = torch.randn(2, 7, 3, 5)
        >>> parents = fixed_point_routing(votes).pose
        >>> coupling = torch.einsum("bijp,bjp->bij", votes, parents).softmax(-1)
        >>> torch.allclose(squash(torch.einsum("bij,bijp->bjp", coupling, votes)), parents, atol=1e-4)
        True
    """
    operator = tensor_votes(votes)
    limits = SolutionLimits(max_iters, tolerance, anderson, adjoint_iters, adjoint_tolerance, check_every, traced_iters)
    _check_temperature(inverse_temperature)
    _check_squash(squash)
    check_broadcasts(prior, (operator.children, operator.parents), "prior", optional=True)
    check_broadcasts(bias, (operator.parents, operator.pose), "bias", optional=True)
    equation = RoutingEquation(operator, inverse_temperature, orphan, squash, limits, trace)
    total = equation.unroll(prior, bias) if must_be_traceable() else equation.solve_implicitly(prior, bias)
    return squash_to_capsules(total, squash)


def _check_temperature(inverse_temperature: float) -> None:
    if not 0.0 <= inverse_temperature < float("inf"):
        raise ValueError(f"inverse_temperature is at least 0 and finite; got inverse_temperature={inverse_temperature}")


def _check_squash(squash: str) -> None:
    if squash not in SLOPES:  # the backward pass has to know its derivative
        raise ValueError(f"no squash {squash!r} of a fixed point; there are {', '.join(map(repr, SLOPES))}")


class FixedPointRouting(Routing):
    """Fixed-point routing as a module: dynamic routing without a number of iterations.

    Args:
        max_iters: iterations at most.
        tolerance: relative change by an iteration at which an example has converged; by the number type if left out.
        anderson: how many earlier iterations Anderson acceleration combines; 0 is plain iteration.
        inverse_temperature: β: how much agreement decides.
        prior: whether logits that are added to the agreement are learned.
        bias: whether a bias of each parent's input s_j is learned.
        orphan: whether a child may also belong to none of the parents.
        squash: how the sum of the votes becomes a pose, ``"rational"`` or ``"exponential"``
            (``torchcaps.squashing.SQUASHES``).
        adjoint_iters: iterations of the backward pass at most; ``max_iters`` if left out.
        adjoint_tolerance: tolerance of the backward pass; that of the forward pass if left out.
        check_every: after how many iterations to look whether all examples have converged; if left out, after each on
            CPUs and never elsewhere.
        traced_iters: plain iterations in compiled and exported programs.
        sizes: sizes of the votes, for a routing that is used without a layer; a layer gives its own.

    Shape:
        - votes: ``(*b, i, j, p)``; score: ``(*b, i)``.
        - result: poses ``(*b, j, p)``, scores ``(*b, j)``.

    Returns:
        The parent ``Capsules``.

    Example:
        >>> FixedPointRouting(tolerance=1e-4)(torch.randn(2, 7, 3, 5)).pose.shape
        torch.Size([2, 3, 5])
    """

    title = "fixed point"
    paper = (
        "Sabour, Frosst and Hinton, *Dynamic Routing Between Capsules*, NIPS 2017, iterated to convergence as "
        "Tsai, Srivastava, Goh and Salakhutdinov, ICLR 2020, propose. https://arxiv.org/abs/2002.04764"
    )
    iterates = False  # it has no number of iterations
    reads_scores = False
    primary = "squashed"
    suited_losses = ("margin", "cross_entropy", "binary_cross_entropy")

    def __init__(
        self,
        *,
        max_iters: int = 100,
        tolerance: float | None = None,
        anderson: int = 5,
        inverse_temperature: float = 1.0,
        prior: bool = False,
        bias: bool = False,
        orphan: bool = False,
        squash: str = "rational",
        adjoint_iters: int | None = None,
        adjoint_tolerance: float | None = None,
        check_every: int | None = None,
        traced_iters: int = 20,
        sizes: VoteShape | None = None,
    ) -> None:
        super().__init__()
        SolutionLimits(max_iters, tolerance, anderson, adjoint_iters, adjoint_tolerance, check_every, traced_iters)
        _check_temperature(inverse_temperature)
        _check_squash(squash)
        self.max_iters, self.tolerance, self.anderson = max_iters, tolerance, anderson
        self.adjoint_iters, self.adjoint_tolerance = adjoint_iters, adjoint_tolerance
        self.check_every, self.traced_iters = check_every, traced_iters
        self.inverse_temperature, self.orphan = inverse_temperature, orphan
        self.learn_prior, self.learn_bias, self.squash = prior, bias, squash
        self.register_parameter("prior", None)
        self.register_parameter("bias", None)
        self._attach_given(sizes)

    def attach(self, shape: VoteShape) -> None:
        super().attach(shape)
        if self.learn_prior:
            self.prior = nn.Parameter(torch.zeros(shape.children or 1, shape.parents or 1))
        if self.learn_bias:
            self.bias = nn.Parameter(torch.zeros(shape.parents or 1, shape.pose))

    def weight_std(self, shape: VoteShape) -> float:
        return 0.1  # as for dynamic routing

    def forward(
        self,
        votes: Votes | Float[Tensor, "*b i j p"],
        score: Float[Tensor, "..."] | None = None,  # the length of a child's pose is its presence
        *,
        trace: Trace | None = None,
    ) -> Capsules:
        return fixed_point_routing(
            votes,
            max_iters=self.max_iters,
            tolerance=self.tolerance,
            anderson=self.anderson,
            inverse_temperature=self.inverse_temperature,
            prior=self.prior,
            bias=self.bias,
            orphan=self.orphan,
            squash=self.squash,
            adjoint_iters=self.adjoint_iters,
            adjoint_tolerance=self.adjoint_tolerance,
            check_every=self.check_every,
            traced_iters=self.traced_iters,
            trace=trace,
        )
