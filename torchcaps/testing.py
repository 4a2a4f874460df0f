"""The assertions that the routings of this package are held to, for routings of your own.

``check_routing(MyRouting)`` holds a module to all of them. The single assertions take functions of tensors, each of
which says by letters what its axes are: ``b`` examples, ``i`` children, ``j`` parents, ``p`` numbers of a pose.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.capsules import Capsules
from torchcaps.routing import Routing, Trace, VoteShape, create, resolve
from torchcaps.votes import Votes, tensor_votes

DOUBLE = 1e-10
"""Largest relative error in double precision, where only rounding is left."""
SINGLE_VALUE, SINGLE_GRADIENT = 1e-5, 1e-4
"""The same in single precision."""

Results = Capsules | Tensor | Sequence[Tensor | None]
Function = Callable[..., Results]
"""Tensors in; ``Capsules``, a tensor or several out. ``None`` stands for what a routing does not return."""


def measure_error(actual: Tensor, expected: Tensor) -> float:
    """The largest difference between two tensors, relative to the largest number that is expected.

    Args:
        actual: what was computed.
        expected: what is right.

    Returns:
        The error; 0 for tensors without elements.

    Example:
        >>> measure_error(torch.tensor([1.0, 2.5]), torch.tensor([1.0, 2.0]))
        0.25
    """
    assert actual.shape == expected.shape, f"{tuple(actual.shape)} is not {tuple(expected.shape)}"
    if not expected.numel():
        return 0.0
    largest = expected.detach().abs().max().double().clamp_min(1e-30)
    return float((actual.detach().double() - expected.detach().double()).abs().max() / largest)


def assert_near(actual: Tensor, expected: Tensor, tolerance: float = DOUBLE) -> None:
    """Two tensors are the same, up to a tolerance relative to the largest number.

    Args:
        actual: what was computed.
        expected: what is right.
        tolerance: largest error.

    Example:
        >>> assert_near(torch.ones(3), torch.ones(3))
    """
    error = measure_error(actual, expected)
    assert error <= tolerance, f"relative error {error:.1e} is above {tolerance:.0e}"


def differentiate(function: Function, inputs: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """What a function returns, and the gradients of one fixed projection of it.

    Args:
        function: from tensors to tensors.
        inputs: its arguments.

    Returns:
        The results, and a gradient for each input (zeros where there is none).

    Example:
        >>> differentiate(lambda x: [x * 2], [torch.zeros(1)])[1][0].shape
        torch.Size([1])
    """
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    results = [result for result in _list(function(*leaves)) if result is not None]
    generator = torch.Generator().manual_seed(7)
    weights = [torch.randn(r.shape, generator=generator, dtype=torch.float64).to(r.dtype) for r in results]
    total = sum(((r * w).sum() for r, w in zip(results, weights, strict=True)), results[0].new_zeros(()))
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return results, [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]


def assert_same(
    function: Function,
    reference: Function,
    inputs: Sequence[Tensor],
    value: float = DOUBLE,
    gradient: float = DOUBLE,
    reference_inputs: Sequence[Tensor] | None = None,
) -> None:
    """Two functions agree in value and in gradient.

    Args:
        function: what is tested.
        reference: what is right, written independently.
        inputs: arguments of both.
        value: tolerance of values.
        gradient: tolerance of gradients.
        reference_inputs: arguments of the reference, where they differ (in double precision, say).

    Example:
        >>> assert_same(lambda x: [x + x], lambda x: [2 * x], [torch.ones(3, dtype=torch.float64)])
    """
    results, found = differentiate(function, inputs)
    expected, wanted = differentiate(reference, inputs if reference_inputs is None else reference_inputs)
    assert len(results) == len(expected), f"{len(results)} results in place of {len(expected)}"
    for result, right in zip(results, expected, strict=True):
        assert_near(result, right, value)
    for one, other in zip(found, wanted, strict=True):
        assert_near(one, other, gradient)


def assert_child_order_irrelevant(function: Function, inputs: Sequence[Tensor], axes: Sequence[str]) -> None:
    """The order of the children does not matter.

    Args:
        function: a routing, of tensors that belong to children and others.
        inputs: its arguments.
        axes: the letters of each; those with ``i`` are put into another order.

    Example:
        >>> from torchcaps.routing import dynamic_routing
        >>> votes = torch.randn(2, 7, 3, 5, dtype=torch.float64)
        >>> assert_child_order_irrelevant(dynamic_routing, [votes], ["b i j p"])
    """
    children = next(_size(each, letters, "i") for each, letters in zip(inputs, axes, strict=True) if "i" in letters)
    order = torch.randperm(children, generator=torch.Generator().manual_seed(0))
    _assert_all_near(function(*_take(inputs, axes, "i", order)), function(*inputs))


def assert_parents_keep_places(function: Function, inputs: Sequence[Tensor], axes: Sequence[str]) -> None:
    """Parents in another order give the same parents in that order.

    Args:
        function: a routing, whose results begin with the axes ``b j``.
        inputs: its arguments.
        axes: the letters of each; those with ``j`` are put into another order.

    Example:
        >>> from torchcaps.routing import fm_agreement
        >>> assert_parents_keep_places(fm_agreement, [torch.randn(2, 7, 3, 5, dtype=torch.float64)], ["b i j p"])
    """
    parents = next(_size(each, letters, "j") for each, letters in zip(inputs, axes, strict=True) if "j" in letters)
    order = torch.arange(parents).roll(1)
    expected = [None if result is None else result[:, order] for result in _list(function(*inputs))]
    _assert_all_near(function(*_take(inputs, axes, "j", order)), expected)


def assert_examples_independent(function: Function, inputs: Sequence[Tensor], axes: Sequence[str]) -> None:
    """An example by itself gives what it gives in a batch.

    Args:
        function: a routing, whose results begin with the axis ``b``.
        inputs: its arguments.
        axes: the letters of each; of those with ``b`` the last example is taken.

    Example:
        >>> from torchcaps.routing import fm_agreement
        >>> assert_examples_independent(fm_agreement, [torch.randn(2, 7, 3, 5, dtype=torch.float64)], ["b i j p"])
    """
    alone = function(*(each[-1:] if "b" in letters else each for each, letters in zip(inputs, axes, strict=True)))
    _assert_all_near(alone, [None if result is None else result[-1:] for result in _list(function(*inputs))])


def assert_absent_children_ignored(
    function: Function, inputs: Sequence[Tensor], axes: Sequence[str], *, score: int = 1, absent: int = 2
) -> None:
    """Children whose score is minus infinity change nothing: the rest alone gives the same.

    Args:
        function: a routing that reads scores.
        inputs: its arguments.
        axes: the letters of each.
        score: which of the inputs are the children's scores.
        absent: how many of the children are absent: the last ones.

    Example:
        >>> from torchcaps.routing import em_routing
        >>> beta = torch.zeros(3, dtype=torch.float64)
        >>> tensors = [torch.randn(2, 7, 3, 5, dtype=torch.float64), torch.zeros(2, 7, dtype=torch.float64)]
        >>> route = lambda votes, score: em_routing(votes, score, beta_cost=beta, beta_active=beta)
        >>> assert_absent_children_ignored(route, tensors, ["b i j p", "b i"])
    """
    there = torch.arange(_size(inputs[score], axes[score], "i") - absent)
    given = list(inputs)
    given[score] = inputs[score].clone()
    given[score][..., -absent:] = float("-inf")
    _assert_all_near(function(*given), function(*_take(given, axes, "i", there)))


def assert_couplings_sum_to_one(
    function: Callable[..., Any], inputs: Sequence[Tensor], *, orphan: bool = False
) -> Trace:
    """In every iteration of its trace, a routing shares each child out: to one, or with an orphan category to less.

    Args:
        function: a routing that takes ``trace=``.
        inputs: its arguments, the votes first.
        orphan: whether a child may belong to none of the parents.

    Returns:
        The trace.

    Example:
        >>> from torchcaps.routing import dynamic_routing
        >>> trace = assert_couplings_sum_to_one(dynamic_routing, [torch.randn(2, 7, 3, 5, dtype=torch.float64)])
        >>> len(trace.iterations)
        3
    """
    trace = Trace()
    function(*inputs, trace=trace)
    assert trace.iterations, "nothing was recorded in the trace; call trace.record(...) in every iteration"
    for iteration in trace.iterations:
        wanted = tuple(inputs[0].shape[:-1])
        assert iteration.coupling.shape == wanted, f"couplings of {tuple(iteration.coupling.shape)}, not {wanted}"
        total = iteration.coupling.sum(-1)
        if orphan:
            assert bool((total < 1.0).all()), "with an orphan category, couplings sum to less than one"
        else:
            assert_near(total, torch.ones_like(total))
    return trace


def check_routing(routing: str | type[Routing], reference: Callable[..., Any] | None = None) -> None:
    """Hold a routing module to all assertions, and to what its attributes say of it.

    It is run as in evaluation. Its parameters, made for an open number of children, get random numbers.

    Args:
        routing: a class, or a name that ``torchcaps.routing.create`` takes.
        reference: ``reference(votes, score, **parameters)`` in plain operations, which returns capsules or such a
            tuple; values and gradients are compared, those of the parameters too. Where the routing reads poses,
            ``reference(votes, score, pose, **parameters)``.

    Example:
        >>> from torchcaps.routing.reference import fm_agreement
        >>> check_routing("fm", lambda votes, score: fm_agreement(votes))
    """
    examples, children, parents, pose = 2, 7, 3, 4
    module = create(resolve(routing))
    module.attach(VoteShape(None, parents, pose, fan_in=children))
    module.double().eval()
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5, generator=generator)
    votes = torch.randn(examples, children, parents, pose, dtype=torch.float64, generator=generator)
    score = torch.randn(examples, children, dtype=torch.float64, generator=generator)
    inputs, axes = [votes, score], ["b i j p", "b i"]
    if module.reads_poses:
        inputs.append(torch.randn(examples, children, pose, dtype=torch.float64, generator=generator))
        axes.append("b i x")

    def run(*inputs: Tensor, trace: Trace | None = None) -> list[Tensor | None]:
        votes, score, *poses = inputs
        return list(module(_join(votes, *poses), score, trace=trace))

    _check_attributes(module, run(*inputs), (examples, parents, pose))
    assert_child_order_irrelevant(run, inputs, axes)
    assert_examples_independent(run, inputs, axes)
    if module.reads_scores:
        assert_absent_children_ignored(run, inputs, axes)
    trace = assert_couplings_sum_to_one(run, inputs, orphan=module.orphan)
    assert len(trace.iterations) == module.num_iters, f"{len(trace.iterations)} iterations, not {module.num_iters}"
    _assert_all_near(run(*inputs, trace=Trace()), run(*inputs))
    if reference is not None:
        names = [name for name, _ in module.named_parameters()]
        given = len(inputs)

        def ours(*tensors: Tensor) -> list[Tensor | None]:
            (votes, score, *poses), learned = tensors[:given], dict(zip(names, tensors[given:], strict=True))
            return list(torch.func.functional_call(module, learned, (_join(votes, *poses), score)))

        def theirs(*tensors: Tensor) -> list[Tensor | None]:
            return list(reference(*tensors[:given], **dict(zip(names, tensors[given:], strict=True))))

        assert_same(ours, theirs, [*inputs, *(parameter.detach() for parameter in module.parameters())])


def _join(votes: Tensor, pose: Tensor | None = None) -> Votes | Tensor:
    return votes if pose is None else tensor_votes(votes, pose)


def _check_attributes(module: Routing, results: Sequence[Tensor | None], wanted: tuple[int, int, int]) -> None:
    name = type(module).__name__
    pose, score = results[0], results[1]
    assert pose is not None, f"{name} returns no poses"
    assert tuple(pose.shape) == wanted, f"{name} returns poses of {tuple(pose.shape)} in place of {wanted}"
    assert (score is not None) == module.gives_scores, f"{name}.gives_scores is {module.gives_scores}; got {score}"
    if module.iterates:
        assert module.takes("num_iters"), f"{name} iterates, but its constructor has no num_iters"
    stepwise = type(module).step is not Routing.step
    assert stepwise == module.stepwise, f"{name}.stepwise is {module.stepwise}; its step says otherwise"


def _assert_all_near(results: Results, expected: Results) -> None:
    for one, other in zip(_list(results), _list(expected), strict=True):
        assert (one is None) == (other is None), "one run returns what the other does not"
        if one is not None and other is not None:
            assert_near(one, other)


def _list(results: Results) -> list[Tensor | None]:
    return [results] if isinstance(results, Tensor) else list(results)


def _size(tensor: Tensor, letters: str, letter: str) -> int:
    return tensor.shape[letters.split().index(letter)]


def _take(inputs: Sequence[Tensor], axes: Sequence[str], letter: str, rows: Tensor) -> list[Tensor]:
    """The tensors with these rows of the axis that the letter names."""
    return [
        each.index_select(letters.split().index(letter), rows) if letter in letters.split() else each
        for each, letters in zip(inputs, axes, strict=True)
    ]
