"""Which numbers of a model to train: masks and parts of it, for optimisers."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxdyn._checks import suggestion
from jaxdyn.model.model import Model


def trainable(model: Model, *names: str) -> Model:
    """Return a mask for optimisers: a model whose leaves are True if named, else False.

    `optax.masked(tx, mask)` hands on the gradients of the others as they are; to hold the others still write
    `optax.multi_transform({True: tx, False: optax.set_to_zero()}, mask)`, or `partition` the model.

    Example:
        >>> import jaxdyn
        >>> from jaxdyn.model import trainable
        >>> mask = trainable(jaxdyn.load("arm7"), "inertia", "damping")
        >>> mask.inertia, mask.damping, mask.armature
        (True, True, False)
    """
    leaves = _leaves(model)
    for name in names:
        if name not in leaves:
            raise ValueError(f"a model has no leaf {name!r} to train: {suggestion(name, sorted(leaves))}")
    return _with_leaves(model, {name: name in names for name, leaf in leaves.items() if leaf is not None})


def partition(model: Model, mask: Model) -> tuple[Model, Model]:
    """Split a model by a mask (see `trainable`) into (trained, frozen); each has None for what the other has.

    Example:
        >>> import jax, jaxdyn
        >>> from jaxdyn.model import merge, partition, trainable
        >>> model = jaxdyn.load("arm7")
        >>> trained, frozen = partition(model, trainable(model, "inertia"))
        >>> q = jaxdyn.neutral(model)
        >>> loss = lambda trained: jaxdyn.gravity_force(merge(trained, frozen), q).sum()
        >>> gradient = jax.grad(loss)(trained)
        >>> gradient.inertia.shape, gradient.placement
        ((7, 10), None)
    """
    leaves, chosen = _leaves(model), _leaves(mask)
    trained = {name: leaf if chosen[name] else None for name, leaf in leaves.items()}
    frozen = {name: None if chosen[name] else leaf for name, leaf in leaves.items()}
    return _with_leaves(model, trained), _with_leaves(model, frozen)


def merge(trained: Model, frozen: Model) -> Model:
    """Return the model of which these are the two parts; undoes `partition`."""
    if trained.topology != frozen.topology:
        raise ValueError(f"trained and frozen are parts of two models: {trained!r} and {frozen!r}")
    first, second = _leaves(trained), _leaves(frozen)
    both = [name for name in first if first[name] is not None and second[name] is not None]
    if both:
        raise ValueError(f"{both[0]} is in both parts, trained and frozen: make these by partition")
    return _with_leaves(frozen, {name: leaf for name, leaf in first.items() if leaf is not None})


def _leaves(model: Model) -> dict[str, Any]:
    return {f.name: getattr(model, f.name) for f in dataclasses.fields(model) if not f.metadata.get("static")}


def _with_leaves(model: Model, leaves: dict[str, Any]) -> Model:
    return dataclasses.replace(model, **leaves)
