"""Inertial parameters in and out of a model."""

from __future__ import annotations

from typing import Any

import jax

from jaxdyn.model.model import Model


def inertial_parameters(model: Model) -> jax.Array:
    """Return the ten inertial parameters of every body, (nbodies, 10).

    m, m cx, m cy, m cz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz: mass, first moment and rotational inertia about the
    body frame's origin, in its axes. Inverse dynamics is linear in them.
    """
    return model.inertia


def with_inertial_parameters(model: Model, pi: Any) -> Model:
    """Return the model with other inertial parameters, (nbodies, 10) as in `inertial_parameters`.

    Example:
        >>> import jaxdyn
        >>> model = jaxdyn.load("arm7")
        >>> pi = jaxdyn.inertial_parameters(model)
        >>> float(jaxdyn.with_inertial_parameters(model, 2 * pi).inertia[0, 0] / pi[0, 0])
        2.0
    """
    return model.replace(inertia=pi)
