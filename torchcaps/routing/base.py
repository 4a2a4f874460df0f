"""What all routings have in common: their modules' interface, the record of a run, and checks of the input."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import Capsules, log_sigmoid
from torchcaps.votes import Competition, Votes


@dataclass(frozen=True)
class Iteration:
    """What one iteration of a routing came to.

    Args:
        coupling: how each child was shared out among the parents.
        pose: the parents' poses.
        score: the parents' scores, if they have any.

    Shape:
        - coupling: ``(*b, i, j)``; pose: ``(*b, j, p)``; score: ``(*b, j)``.
    """

    coupling: Float[Tensor, "*b i j"]
    pose: Float[Tensor, "*b j p"]
    score: Float[Tensor, "*b j"] | None


@dataclass
class Trace:
    """The iterations of a routing, in order: pass one as ``trace=`` and read it afterwards.

    A traced run keeps everything, so it takes the memory that other runs save.

    Args:
        iterations: what is there already; a new trace is empty.

    Example:
        >>> from torchcaps.routing import dynamic_routing
        >>> trace = Trace()
        >>> capsules = dynamic_routing(torch.randn(7, 3, 5), trace=trace)
        >>> [step.coupling.shape for step in trace.iterations] == [(7, 3)] * 3
        True
    """

    iterations: list[Iteration] = field(default_factory=list)

    def record(self, votes: Votes, coupling: Tensor, pose: Tensor, score: Tensor | None) -> None:
        """Add an iteration; called by routings.

        Args:
            votes: the votes as the routing was given them.
            coupling: couplings of a block, ``(n, q, i, j)``.
            pose: poses of the parents, ``(n, q, j, p)``.
            score: scores of the parents, ``(n, q, j)``.
        """
        if torch._C._current_graph_task_id() != -1:  # a backward pass that routes again
            return
        *batch, children, parents, size = votes.shape

        def kept(tensor: Tensor, *shape: int) -> Tensor:
            return tensor.detach().to(votes.dtype).reshape(*batch, *shape)

        self.iterations.append(
            Iteration(
                kept(coupling.expand(*coupling.shape[:-1], parents), children, parents),
                kept(pose, parents, size),
                None if score is None else kept(score, parents),
            )
        )


@dataclass(frozen=True)
class VoteShape:
    """The sizes of the layer that a routing works in; ``None`` where the number is open.

    Args:
        children: capsules that one parent sees; parameters of each child need them.
        parents: parent capsules.
        pose: numbers in a parent's pose.
        columns: columns of a child's pose; those of the parent's if left out.
        fan_in: weights that meet in one parent: children, or types of children where positions share weights.
        convolutional: whether the layer is a convolution.
        in_pose: numbers in a child's pose; as many as in the parent's if left out.
        places: positions that the children of a parent lie at, each with weights of its own: of a convolution's field,
            or of the grid below a dense layer.
        types: types of children with weights of their own, where the number of children is open.

    Example:
        >>> VoteShape(children=7, parents=3, pose=4).fan_in
        7
    """

    children: int | None
    parents: int | None
    pose: int
    columns: int = 0
    fan_in: int = 0
    convolutional: bool = False
    in_pose: int = 0
    places: int = 1
    types: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", self.columns or self.pose)
        object.__setattr__(self, "fan_in", self.fan_in or self.children or 1)
        object.__setattr__(self, "in_pose", self.in_pose or self.pose)


def _show(value: object) -> str:
    """An option as people like to read it."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_show, value))})"
    return f"{value:.3g}" if isinstance(value, float) else repr(value)


class Routing(nn.Module):
    """Votes in, capsules out: the base class of all routings, whose attributes say all that others ask of one.

    A layer gives its routing its sizes once, by ``attach``; learned parameters, if the routing has any, are made then.
    A routing that is used without a layer gets them by ``attach(VoteShape(...))``, or in the constructors of this
    package by ``sizes=VoteShape(...)``.

    A subclass overrides ``forward``, ``weight_std``, ``attach`` if it has parameters, and the attributes that differ.
    It records every iteration in the ``trace`` that it is given.

    Example:
        >>> from torchcaps.routing import EMRouting
        >>> EMRouting(sizes=VoteShape(children=7, parents=3, pose=4))(torch.randn(2, 7, 3, 4)).score.shape
        torch.Size([2, 3])
    """

    title: ClassVar[str] = ""
    """What figures, tables and messages call it, before the word "routing"; the name of the class if left out."""
    paper: ClassVar[str] = ""
    """The paper to cite for it, with its address."""
    iterates: ClassVar[bool] = True
    """Whether it goes over the votes several times; then its constructor takes ``num_iters``."""
    stepwise: ClassVar[bool] = False
    """Whether it has a ``step`` from the parents of the step before, so that layers can be routed together."""
    couples: ClassVar[bool] = True
    """Whether it shares children out among parents; where not, ``share_agreement`` stands in for couplings."""
    by_agreement: ClassVar[bool] = True
    """Whether the votes alone tell what agrees; where not, it has learned where children go, or knows nothing."""
    votes_score: ClassVar[bool] = True
    """Whether scores come from the votes; where not, the votes of a last layer teach nothing but poses."""
    reads_scores: bool = True
    """Whether it takes notice of the children's scores: an absent child then changes nothing."""
    reads_poses: bool = False
    """Whether it reads the children's poses beside their votes: ``Votes.child_poses`` then has to be there."""
    gives_scores: bool = True
    """Whether its capsules have scores."""
    evidence: ClassVar[str] = "presence"
    """What ``measure_evidence`` tells of each parent, in a word or two."""
    vote_bias: bool = False
    """Whether the paper's votes have a bias."""
    competition: ClassVar[Competition] = "image"
    """Which parents compete for a child of a convolution."""
    primary: ClassVar[str] = "matrix"
    """The primary capsules that suit it (``torchcaps.models.PRIMARIES``): those of its paper."""
    head: ClassVar[str] = "score"
    """The head that reads what it returns (``torchcaps.models.HEADS``)."""
    suited_losses: ClassVar[tuple[str, ...]] = ("cross_entropy", "binary_cross_entropy")
    """Names of the losses (``torchcaps.losses.LOSSES``) that class capsules of this routing learn from, best first."""

    num_iters: int = 1
    """How many iterations it makes: one where it does not iterate."""
    orphan: bool = False
    """Whether a child may belong to none of the parents."""
    shape: VoteShape | None = None
    """The sizes of its layer, once it has one."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "title" not in vars(cls):
            cls.title = cls.__name__

    @classmethod
    def takes(cls, option: str) -> bool:
        """Whether the constructor has an argument of this name.

        Args:
            option: name of the argument.
        """
        return option in inspect.signature(cls).parameters

    @classmethod
    def demonstrate(cls, shape: VoteShape) -> "Routing":
        """A routing of these sizes to look at without training: override it where parameters of zero show little.

        Args:
            shape: sizes of the votes, whose numbers are about one.
        """
        routing = cls()
        routing.attach(shape)
        return routing

    def attach(self, shape: VoteShape) -> None:
        """Make the parameters that depend on the layer's sizes.

        Args:
            shape: the sizes.
        """
        if self.shape is not None:
            raise ValueError(f"this {type(self).__name__} belongs to another layer already; give each layer its own")
        self.shape = shape

    def extra_repr(self) -> str:
        shown: list[str] = []
        for name in inspect.signature(type(self)).parameters:
            value = getattr(self, name, None)
            if isinstance(value, bool | int | float | str | tuple):
                shown.append(f"{name}={_show(value)}")
            elif isinstance(value, Tensor):  # learned
                shown.append(f"{name}=True")
        return ", ".join(shown)

    def reset_parameters(self) -> None:
        """Make the learned parameters, and statistics if there are any, what ``attach`` made them."""
        if self.shape is None:
            return
        kept = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        parameters, modules, shape = dict(self._parameters), dict(self._modules), self.shape
        self.shape = None
        self.attach(shape)
        made = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        fresh = {name: tensor.detach() for name, tensor in made.items()}
        self._parameters.update(parameters)  # the same objects as before: an optimizer holds on to them
        self._modules.update(modules)
        with torch.no_grad():
            for name, tensor in kept.items():
                tensor.copy_(fresh[name])

    def weight_std(self, shape: VoteShape) -> float:
        """Standard deviation of the initial vote weights: by default such that poses keep their size.

        Args:
            shape: sizes of the layer.
        """
        return shape.columns**-0.5

    def draw_weights(self, weight: Tensor, shape: VoteShape) -> None:
        """Draw the initial vote weights, in place: by default from a normal distribution of ``weight_std``.

        Args:
            weight: the layer's vote weights ``(..., d, h)``.
            shape: sizes of the layer.
        """
        nn.init.normal_(weight, std=self.weight_std(shape))

    def forward(
        self,
        votes: Votes | Float[Tensor, "*b i j p"],
        score: Float[Tensor, "..."] | None = None,
        *,
        trace: Trace | None = None,
    ) -> Capsules:
        """Route.

        Args:
            votes: an operator, or a tensor ``(*b, i, j, p)``.
            score: the children's scores ``(*b, i)``; ``None`` means that all are there.
            trace: filled with what each iteration came to.
        """
        raise NotImplementedError(f"{type(self).__name__} has no forward(votes, score, *, trace)")

    def step(
        self,
        votes: Votes | Float[Tensor, "*b i j p"],
        score: Float[Tensor, "..."] | None = None,
        parents: Capsules | None = None,
        *,
        trace: Trace | None = None,
    ) -> Capsules:
        """One step from the parents of the step before, where the routing is ``stepwise``.

        Args:
            votes: an operator, or a tensor ``(*b, i, j, p)``.
            score: the children's scores ``(*b, i)``; ``None`` means that all are there.
            parents: what the step before returned; ``None`` the first time.
            trace: filled with what the step came to.
        """
        stepwise = ", ".join(kind.__name__ for kind in list_classes() if kind.stepwise)
        raise ValueError(f"{type(self).__name__} does not go step by step; {stepwise} does")

    @contextmanager
    def iterating(self, num_iters: int) -> Iterator[None]:
        """With another number of iterations, for as long as the context lasts.

        Args:
            num_iters: the number of iterations.
        """
        check_iterations(num_iters)
        if not self.iterates:
            raise ValueError(f"{type(self).__name__} does not iterate; got num_iters={num_iters}")
        before, self.num_iters = self.num_iters, num_iters
        try:
            yield
        finally:
            self.num_iters = before

    def share_agreement(self, votes: Votes) -> Float[Tensor, "*b i j"]:
        """What stands in for couplings where the routing has none: rows that sum to one, even by default.

        Args:
            votes: the votes that were routed.
        """
        return torch.full(votes.shape[:-1], 1.0 / votes.parents, dtype=votes.dtype, device=votes.device)

    def measure_evidence(self, parents: Capsules, coupling: Float[Tensor, "*b i j"]) -> Float[Tensor, "*b j"]:
        """One number for each parent, the larger the more it is there: its ``evidence``.

        Args:
            parents: what the routing returned.
            coupling: couplings of the last iteration.
        """
        return parents.presence if self.gives_scores else coupling.mean(-2)

    def _attach_given(self, sizes: VoteShape | None) -> None:
        """The last line of a constructor that takes ``sizes``."""
        if sizes is not None:
            self.attach(sizes)

    def _attached(self) -> VoteShape:
        if self.shape is None:
            name = type(self).__name__
            raise ValueError(
                f"this {name} has no sizes yet; put it in a layer, or give sizes=VoteShape(children, parents, pose)"
            )
        return self.shape


def list_classes(kind: type[Routing] = Routing) -> list[type[Routing]]:
    """All classes of routings that this process has seen, in this package and elsewhere."""
    return [each for below in kind.__subclasses__() for each in (below, *list_classes(below))]


def check_iterations(num_iters: int) -> None:
    if num_iters < 1:
        raise ValueError(f"routing needs at least one iteration; got num_iters={num_iters}")


def check_broadcasts(tensor: Tensor | None, expected: tuple[int, ...], name: str, *, optional: bool = False) -> None:
    """The tensor must have the expected shape, or ones in place of some of its sizes; one that is optional may be
    ``None``."""
    if tensor is None and optional:
        return
    check_tensor(tensor, expected, name, optional=optional)
    assert tensor is not None
    fits = tensor.ndim == len(expected) and all(
        size in (1, wanted) for size, wanted in zip(tensor.shape, expected, strict=True)
    )
    if not fits:
        raise ValueError(f"{name} of shape {tuple(tensor.shape)}; expected {expected}, or 1 in place of any of them")


def check_tensor(value: object, expected: tuple[int, ...], name: str, *, optional: bool = False) -> None:
    """A tensor, and not a number or a list."""
    if not isinstance(value, Tensor):
        known = f"{name} is a tensor of shape {tuple(map(int, expected))}{' or None' if optional else ''}"
        raise ValueError(f"{known}; got {name}={value!r:.80}")


def log_presence(score: Float[Tensor, "*b i"]) -> Float[Tensor, "*b i 1"]:
    """The logarithm of each child's presence, far below that of any other child where it is absent, yet finite: a
    parent all of whose children are absent has a mean as well."""
    return log_sigmoid(score).clamp_min(torch.finfo(score.dtype).min / 4).unsqueeze(-1)
