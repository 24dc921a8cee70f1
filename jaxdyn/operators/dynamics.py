"""Dynamics in spatial operators: factors of the mass matrix, its inverse, forward dynamics (001 sections 3-5)."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.aba import require_regular
from jaxdyn.algorithms.articulation import Rows, like_vector, tile_of_rows
from jaxdyn.algorithms.rnea import bias_force
from jaxdyn.joints import combine
from jaxdyn.model import Model
from jaxdyn.operators.expressions import Atom
from jaxdyn.operators.mechanism import Mechanism
from jaxdyn.operators.operator import Operator
from jaxdyn.operators.robot import spatial_operators
from jaxdyn.operators.steps import as_force, as_motion
from jaxdyn.recursion import batched
from jaxdyn.spatial import Motion


def innovations_factor(model: Model, q: Any) -> Operator:
    r"""Return the innovations factor of the mass matrix.

    .. math:: M = m\,m^*, \qquad m = (I + H \phi K)\,L, \qquad m^{-1} = L^{-1} (I - H \psi K)

    with L the lower Cholesky factors of the blocks of D (001 (11)-(13)). It is block upper triangular in the model's
    order; from tip to base it is the Cholesky factor of the mass matrix. All of `m @ x`, `m.T @ x`, `m.solve(x)`,
    `m.T.solve(x)` and `m.logdet()` take time proportional to the number of bodies, and are differentiable.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).

    Returns:
        m, an operator (nv, nv).

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> model = jaxdyn.load("arm7")
        >>> m = jaxdyn.operators.innovations_factor(model, jaxdyn.neutral(model))
        >>> m.T.solve(m.solve(jnp.ones(7))).shape  # the inverse of the mass matrix, applied
        (7,)
    """
    return spatial_operators(model, q).m


def _bias_stages(robot: Mechanism, model: Model, q: Any, qd: Any, f_ext: Any) -> tuple[list[Any], list[Any]]:
    """Return bias accelerations and bias forces by stage; gravity moves the root bodies, and with them all others."""
    is_root = np.array(model.parents) < 0
    rows = robot.take("joint", qd)
    V_J = robot.apply("H", True, rows)
    a_J = [combine(rate, x) for rate, x in zip(robot.column_rates(q, qd), rows, strict=True)]
    a = [V.cross(as_motion(v)) + rate for V, v, rate in zip(robot.V, V_J, a_J, strict=True)]
    up = [jnp.where(is_root[stage.bodies][..., None], 1.0, 0.0) for stage in robot.joints.stages]
    a = [Motion(x.ang, x.lin - here * g) for x, here, g in zip(a, up, robot.down, strict=True)]
    b = [V.cross_force(M @ V) for M, V in zip(robot.M, robot.V, strict=True)]
    return a, b if f_ext is None else [f - g for f, g in zip(b, robot.forces(f_ext), strict=True)]


def _bias_terms(model: Model, q: Any, qd: Any, f_ext: Any) -> Any:
    robot = Mechanism(model, q, root_axes=False, qd=qd)
    a, b = _bias_stages(robot, model, q, qd, f_ext)
    return robot.give("body", a), robot.give("body", b)


_bias_terms_of_state = batched(_bias_terms, tile=tile_of_rows())


@arguments.compiled
def _bias_terms_jitted(model: Model, q: Any, qd: Any, f_ext: Any) -> Any:
    q, qd = arguments.vectors(model, q=q, qd=qd)
    if not model.nbodies:
        return (jnp.zeros(0, q.dtype),) * 2
    return _bias_terms_of_state(model, q, qd, arguments.forces(model, f_ext))


def bias_terms(model: Model, q: Any, qd: Any, *, f_ext: Any = None) -> tuple[jax.Array, jax.Array]:
    r"""Compute the bias accelerations and bias forces of all bodies.

    .. math:: V = \phi^* H^* \dot q, \quad \alpha = \phi^* (H^* \ddot q + a), \quad f = \phi (M \alpha + b)

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        f_ext: force on each body, (nbodies, 6), as in `jaxdyn.inverse_dynamics`.

    Returns:
        a and b, (6 nbodies,) each, world axes. Accelerations are rates of bodies' own components; gravity is in a, as
        an upward acceleration of the root bodies; b has the gyroscopic forces, less f_ext.
    """
    arguments.require_model(model)
    arguments.refuse_mimic(model, "the spatial operator algebra")
    return _bias_terms_jitted(model, q, qd, f_ext)


def _filtered(model: Model, q: Any, qd: Any, tau: Any, f_ext: Any) -> jax.Array:
    """Run the filter with the biases inside, and the smoother; products in the order in which they are applied."""
    robot = Mechanism(model, q, root_axes=False, qd=qd)
    a, b = _bias_stages(robot, model, q, qd, f_ext)
    tau = robot.take("joint", tau)
    H, psi, K, D_inverse = (Atom(name) for name in ("H", "psi", "K", "D^-1"))
    felt = zip(robot.product((K,), tau), robot.apply("P", False, a), b, strict=True)
    predicted = robot.product((psi, H), [as_force(x) + as_force(y) + z for x, y, z in felt])
    nu = robot.product((D_inverse,), _minus(tau, predicted))
    moved = [as_motion(x) + y for x, y in zip(robot.product((H.T,), nu), a, strict=True)]
    return robot.give("joint", _minus(nu, robot.product((psi.T, K.T), moved)))


def _minus(x: list[Rows], y: list[Rows]) -> list[Rows]:
    """Return the difference of two vectors of joint space by stage."""
    return [tuple(a - b for a, b in zip(*both, strict=True)) for both in zip(x, y, strict=True)]


_filtered_jitted = arguments.compiled(
    batched(_filtered, tile=tile_of_rows(), like=lambda model, q, qd, tau, f_ext: like_vector(tau, model, q))
)


def forward_dynamics(
    model: Model,
    q: Any,
    qd: Any,
    tau: Any,
    *,
    f_ext: Any = None,
    biases: Literal["before", "inside"] = "before",
) -> jax.Array:
    r"""Compute the acceleration by operator expressions; the same as `jaxdyn.forward_dynamics`.

    With the biases before, by a sweep of inverse dynamics (001 (14)-(15)):

    .. math:: \ddot q = (I - H\psi K)^* D^{-1} (I - H\psi K)\,(\tau - C)

    and, by (I - H psi K) H phi = H psi (001 (16)), with the biases inside the filter:

    .. math:: \ddot q = (I - H\psi K)^* D^{-1} [\tau - H\psi(K\tau + P a + b)] - K^* \psi^* a

    There poses, velocities and biases are found in one outward sweep, and the filter runs once for all three terms.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        tau: joint forces, (nv,).
        f_ext: force on each body, (nbodies, 6).
        biases: "before" or "inside".

    Returns:
        qdd, (nv,).
    """
    if biases not in ("before", "inside"):
        raise ValueError(f'biases must be "before" or "inside"; got {biases!r}')
    s = spatial_operators(model, q)
    q, qd, tau = arguments.vectors(model, q=q, qd=qd, tau=tau)
    if not model.nv:
        return tau
    if biases == "before":
        whitening = s.I - s.H @ s.psi @ s.K
        return (whitening.T @ s.D.inv() @ whitening) @ (tau - bias_force(model, q, qd, f_ext=f_ext))
    return _filtered_jitted(model, q, qd, tau, arguments.forces(model, f_ext))


# ---------------------------------------------------------------------- Omega
def _omega(model: Model, q: Any, rigid: bool) -> jax.Array:
    robot = Mechanism(model, q, root_axes=False, columns=False)
    return jnp.moveaxis(robot.joints.by_body(robot.Omega(rigid=rigid)).to_array(), 2, 0)


_omega_of_state = {
    rigid: batched(
        lambda model, q, rigid=rigid: _omega(model, q, rigid),
        tile=tile_of_rows(),
        like=lambda model, q: jax.ShapeDtypeStruct((model.nbodies, 6, 6), jnp.result_type(q, model.dtype)),
    )
    for rigid in (True, False)
}


def operational_inertias_inverse(model: Model, q: Any, *, rigid: bool = False) -> jax.Array:
    r"""Compute the inverse of the inertia that every body shows in the assembled robot, by one outward recursion.

    .. math:: \Omega(k) = \psi^*(p, k)\,\Omega(p)\,\psi(p, k) + H^* D^{-1} H

    the blocks on the diagonal of :math:`\phi^* H^* M^{-1} H \phi` (001 section 5.2; Delta of 000 (82)).

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        rigid: with phi in place of psi and 1 in place of D, J J* of the bodies (001 section 2).

    Returns:
        (nbodies, 6, 6), world axes, about each body's origin: accelerations by forces.
    """
    q = spatial_operators(model, q).source.q
    if not rigid:
        require_regular(model)
    return _operational_inertias(model, q, rigid=rigid) if model.nbodies else jnp.zeros((0, 6, 6), q.dtype)


def _operational(model: Model, q: Any, *, rigid: bool) -> jax.Array:
    return _omega_of_state[rigid](model, q)


_operational_inertias = arguments.compiled(_operational, static="rigid")


def mass_matrix_inverse(model: Model, q: Any) -> jax.Array:
    r"""Compute the inverse of the mass matrix from Omega; the same as `jaxdyn.mass_matrix_inverse`.

    For a chain this is the recursion of 000 (83). For a tree, with :math:`x_i = \psi K e_i` the force that column i
    leaves on the bodies inboard of it, and c the nearest body that both i and j have inboard,

    .. math:: M^{-1}_{ij} = [D^{-1}]_{ij} - [D^{-1} H x_j]_i - [D^{-1} H x_i]_j + x_i(c)^* \Omega(c)\, x_j(c)

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).

    Returns:
        The inverse, (nv, nv), symmetric.
    """
    s = spatial_operators(model, q)
    if not model.nv:
        return jnp.zeros((0, 0), s.I.dtype)
    Omega = operational_inertias_inverse(model, q)
    x = (s.psi @ s.K).as_matrix().reshape((model.nbodies, 6, model.nv))
    common = nearest_common(model.parents)
    body = np.concatenate([np.full(j.nv, i) for i, j in enumerate(model.topology.joints)]).astype(np.int32)
    parent = np.array(model.parents, np.int32)[body]
    c = common[parent[:, None], parent[None]]  # -1: nothing inboard of both
    at = jnp.where(c[..., None] >= 0, jnp.moveaxis(x, 2, 0)[np.arange(model.nv)[:, None], c], 0)  # x_i(c), (nv, nv, 6)
    through = jnp.einsum("ija,ijab,jib->ij", at, Omega[c], at)
    D_inverse = s.D.inv()
    along = D_inverse @ (s.H @ x.reshape((-1, model.nv)))
    return D_inverse.as_matrix() - along - along.T + through


def nearest_common(parents: tuple[int, ...]) -> np.ndarray:
    """Return the nearest body inboard of both of two bodies, themselves included, (nbodies + 1, nbodies + 1).

    The last row and column are those of the world, -1.
    """
    n = len(parents)
    common = np.full((n + 1, n + 1), -1, np.int32)
    for i in range(n):
        for j in range(i):
            common[i, j] = common[j, i] = common[parents[i], j]
        common[i, i] = i
    return common
