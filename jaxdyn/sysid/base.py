r"""Base parameters: the combinations of parameters on which torques depend, and the directions on which they do not.

Joint torques are linear in the parameters, :math:`\tau = W \pi`, but many columns of W depend on one another whatever
the motion: of the 70 inertial parameters of an arm with seven links, 43 combinations can be identified (Gautier 1991).
Found numerically, from the singular values of W over random states, or over the states of a recording.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.algorithms import arguments
from jaxdyn.model import Model, random_configuration
from jaxdyn.sysid.terms import Terms, regressor_of_state, stacked_regressor, terms_of

READABLE = 1e-6
"""Coefficients below this are left out of the text of a combination."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class BaseParameters:
    """Which combinations of parameters change torques; made by `base_parameters`."""

    combination: jax.Array
    """(rank, n): base parameters = combination @ parameters. One on the independent columns, with what the others
    add to them."""
    nullspace: jax.Array
    """(n, n - rank), orthonormal columns: directions in which parameters may change without changing a torque."""
    singular_values: jax.Array
    """(n,), descending, of the regressor with columns of length one; rank is where they fall to rounding."""
    independent: tuple[int, ...] = field(metadata={"static": True})
    """(rank,) the columns of the regressor that are kept, ascending."""
    names: tuple[str, ...] = field(metadata={"static": True})
    """(n,) names of the parameters."""
    terms: Terms = field(metadata={"static": True})
    """What the parameters are besides those of the links."""

    @property
    def rank(self) -> int:
        """Number of base parameters."""
        return len(self.independent)

    @property
    def condition(self) -> float:
        """Condition number of the base regressor with columns of length one."""
        s = np.asarray(self.singular_values)[: self.rank]
        return float(s[0] / s[-1]) if self.rank else 1.0

    def __len__(self) -> int:
        return self.rank

    def __repr__(self) -> str:
        return f"BaseParameters({self.rank} of {len(self.names)}, condition {self.condition:.3g})"

    def describe(self) -> list[str]:
        """Return each base parameter as text, such as "link2.mx + 0.316 link3.m - link3.mz"."""
        return [_sum(row, self.names) for row in np.asarray(self.combination)]

    def unidentifiable(self) -> tuple[str, ...]:
        """Return the names of the parameters that enter no torque at all."""
        absent = np.abs(np.asarray(self.combination)).max(0, initial=0) == 0
        return tuple(name for name, gone in zip(self.names, absent, strict=True) if gone)


def base_parameters(
    model: Model,
    q: Any = None,
    qd: Any = None,
    qdd: Any = None,
    *,
    friction: str | None = "none",
    rotor_inertia: bool = False,
    offset: bool = False,
    tolerance: float | None = None,
    samples: int | None = None,
    seed: int = 0,
) -> BaseParameters:
    """Find which combinations of parameters torques depend on: by the model alone, or by the states of a recording.

    Args:
        model: the model, with concrete leaves; its inertias do not enter.
        q: configurations, (samples, nq). None is random states: what any motion at all could identify.
        qd: velocities, (samples, nv).
        qdd: accelerations, (samples, nv).
        friction: as in `identify`, but without friction by default.
        rotor_inertia: as in `identify`.
        offset: as in `identify`.
        tolerance: singular values below this fraction of the largest count as zero; by default a few roundings.
        samples: number of random states; by default more than enough.
        seed: of the random states.

    Returns:
        The base parameters; usable inside jit, although found outside.

    Example:
        >>> import jaxdyn
        >>> from jaxdyn.sysid import base_parameters
        >>> base = base_parameters(jaxdyn.load("double_pendulum"))
        >>> base.rank, base.nullspace.shape
        (6, (20, 14))
    """
    arguments.require_model(model)
    model.require_single()
    terms = terms_of(friction, rotor_inertia, offset)
    given = [x is not None for x in (q, qd, qdd)]
    if any(given) and not all(given):
        raise ValueError("q, qd and qdd must be given together, or none of them")
    if not any(given):
        q, qd, qdd = _random_states(model, samples or fewest_states(model, terms), seed)
    W = np.asarray(stacked_regressor(model, q, qd, qdd, terms), np.float64).reshape(-1, terms.size(model))
    return base_of_regressor(W, terms.names(model), terms, float(jnp.finfo(model.dtype).eps), tolerance)


def base_regressor(model: Model, base: BaseParameters, q: Any, qd: Any, qdd: Any) -> jax.Array:
    """Compute the regressor of the base parameters at one state: independent columns only, (nv, rank).

    Differentiable with respect to the state and the model's kinematics; for a batch use `jax.vmap`.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn.sysid import base_parameters, base_regressor
        >>> model = jaxdyn.load("double_pendulum")
        >>> base_regressor(model, base_parameters(model), jnp.ones(2), jnp.ones(2), jnp.ones(2)).shape
        (2, 6)
    """
    arguments.require_model(model)
    return regressor_of_state(model, q, qd, qdd, base.terms)[:, np.array(base.independent, int)]


def base_of_regressor(
    W: np.ndarray, names: tuple[str, ...], terms: Terms, eps: float, tolerance: float | None = None
) -> BaseParameters:
    """Return the base parameters of a stacked regressor (rows, n)."""
    linalg = import_module("scipy.linalg")
    n = W.shape[1]
    length = np.linalg.norm(W, axis=0)
    absent = length <= 64 * eps * length.max(initial=0)  # columns of rounding alone
    scale = np.where(absent, 1.0, length)
    R = np.linalg.qr(np.vstack([np.where(absent, 0, W / scale), np.zeros((n, n))]), mode="r")
    R, order = linalg.qr(R, mode="r", pivoting=True)
    s = np.linalg.svd(R, compute_uv=False)
    tolerance = max(64, n) * eps if tolerance is None else tolerance
    rank = int((s > tolerance * s.max(initial=0)).sum())
    kept, left = order[:rank], order[rank:]
    share = linalg.solve_triangular(R[:rank, :rank], R[:rank, rank:]) if rank else np.zeros((0, n))
    share = np.where(np.abs(share) > 1e3 * tolerance, share, 0)  # in units of the columns' lengths
    combination = np.zeros((rank, n))
    combination[np.arange(rank), kept] = 1
    combination[:, left] = share * scale[left] / scale[kept][:, None]
    rows = np.argsort(kept)
    combination = combination[rows]
    null = np.zeros((n, n - rank))
    null[left, np.arange(n - rank)] = 1
    null[kept[rows]] = -combination[:, left]
    return BaseParameters(
        jnp.asarray(combination), jnp.asarray(np.linalg.qr(null)[0]), jnp.asarray(s), tuple(sorted(kept.tolist())),
        names, terms,
    )  # fmt: skip


def fewest_states(model: Model, terms: Terms) -> int:
    """Return a number of random states that shows the rank."""
    return 2 * -(-terms.size(model) // max(model.nv, 1)) + 8


def _random_states(model: Model, count: int, seed: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    keys = jax.random.split(jax.random.key(seed), count)
    q = jax.vmap(random_configuration, in_axes=(None, 0))(model, keys)
    rates = np.random.default_rng(seed).normal(size=(2, count, model.nv))
    return q, jnp.asarray(2 * rates[0], model.dtype), jnp.asarray(5 * rates[1], model.dtype)


def _sum(row: np.ndarray, names: tuple[str, ...]) -> str:
    text = ""
    for k in np.flatnonzero(np.abs(row) > READABLE):
        size = "" if abs(abs(row[k]) - 1) < READABLE else f"{abs(row[k]):.4g} "
        sign = ("-" if row[k] < 0 else "") if not text else " - " if row[k] < 0 else " + "
        text += f"{sign}{size}{names[k]}"
    return text
