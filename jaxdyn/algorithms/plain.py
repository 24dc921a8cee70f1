r"""The plain twins of inverse dynamics, mass matrix and forward dynamics: the textbook's pages in dense 6x6 matrices.

Link coordinates, Python loops over the bodies, after 004 section 3 (Featherstone, Orin 2000), whose equation numbers
stand beside the lines. Slow to compile; they are here to be read, and to be the witness of the fast algorithms and of
all derivatives.

For joints of every type the velocity across joint i is :math:`S_i \dot q` in the axes of body i, and the term
:math:`\dot h_i \dot q_i` of 004 (4) is :math:`c_i = \mathring S_i \dot q + V_i \times S_i \dot q`, with
:math:`\mathring S` the rate of S in body components (`Joint.bias`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxdyn import _checks
from jaxdyn.model import Model
from jaxdyn.model.configuration import coordinates, joint_transforms
from jaxdyn.model.topology import joint_parameters
from jaxdyn.spatial import Force, Motion, RigidInertia, matrix_of

WORLD = -1
"""The parent of the root bodies: the base."""


class _Tree(NamedTuple):
    """The bodies at a state, each in its own coordinates."""

    parents: tuple[int, ...]
    X: jax.Array
    """(nbodies, 6, 6) takes motions from the parent's coordinates to the body's; its transpose takes forces back."""
    S: jax.Array
    """(nbodies, 6, nv) motion subspace, the h of 004. Its columns are where the joint's velocities are in qd (those of
    a mimic joint: where the velocities are of the joint that it follows), all others are zero."""
    bias: jax.Array
    """(nbodies, 6) (dS/dt) qd, the rate of S taken in body components."""
    I: jax.Array
    """(nbodies, 6, 6) inertia."""


def _tree(model: Model, q: jax.Array, qd: jax.Array) -> _Tree:
    """Return the bodies at a state. What a joint type does, it does for all joints of that type at once."""
    n, nv, dtype = model.nbodies, model.nv, q.dtype
    X = jax.vmap(lambda X_p_b: matrix_of(X_p_b.inverse().motion, Motion, 6))(joint_transforms(model, q))
    I = jax.vmap(lambda pi: matrix_of(RigidInertia.from_parameters(pi).__matmul__, Motion, 6))(model.inertia)
    S, bias = jnp.zeros((n, 6, nv), dtype), jnp.zeros((n, 6), dtype)
    for joint, bodies, q_at, qd_at in model.topology.groups:
        parameters = joint_parameters(vars(model), bodies, joint)
        rows = lambda V: jnp.broadcast_to(jnp.asarray(V.to_array(), dtype), (len(bodies), 6))
        for column, at in zip(joint.subspace(parameters, coordinates(q, q_at)), qd_at.T, strict=True):
            S = S.at[bodies, :, at].set(rows(column))
        bias = bias.at[bodies].set(rows(joint.bias(parameters, coordinates(q, q_at), coordinates(qd, qd_at))))
    return _Tree(model.parents, X.astype(dtype), S, bias, I.astype(dtype))


def _outward(tree: _Tree, base: jax.Array, own: jax.Array) -> jax.Array:
    """Return the motions U_i = X_i U_parent + own_i of all bodies, (nbodies, 6)."""
    U = {WORLD: base}
    for i, parent in enumerate(tree.parents):
        U[i] = tree.X[i] @ U[parent] + own[i]
    return _rows(U)


def _inward(tree: _Tree, own: jax.Array) -> jax.Array:
    """Return the forces f_i = own_i + sum over children X* f of all bodies, (nbodies, 6, ...)."""
    f = {WORLD: jnp.zeros_like(own, shape=own.shape[1:])} | dict(enumerate(own))
    for i, parent in reversed(list(enumerate(tree.parents))):
        f[parent] += tree.X[i].T @ f[i]
    return _rows(f)


def _rows(parts: dict[int, jax.Array]) -> jax.Array:
    """Stack the parts of all bodies, leaving out the first, the world's."""
    return jnp.stack(list(parts.values()))[1:]


def _cross(V: jax.Array, U: jax.Array) -> jax.Array:
    """Return V x U of motions, (nbodies, 6)."""
    return Motion.from_array(V).cross(Motion.from_array(U)).to_array()


def _cross_force(V: jax.Array, f: jax.Array) -> jax.Array:
    """Return V x* f of motions and forces, (nbodies, 6)."""
    return Motion.from_array(V).cross_force(Force.from_array(f)).to_array()


_times = partial(jnp.einsum, "bij,bj->bi")  # the matrix of each body times its vector


@jax.jit
def inverse_dynamics(
    model: Model, q: jax.Array, qd: jax.Array, qdd: jax.Array, *, f_ext: Any = None, base_motion: Any = None
) -> jax.Array:
    r"""Compute the generalised forces of a motion by the recursive Newton-Euler algorithm (004 section 3.1).

    .. math:: \tau = M(q)\,\ddot q + C(q, \dot q) - J^T f_{ext}

    Args:
        model: the model, with joints of any type, trees, forests, mimic joints.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        qdd: acceleration, the rate of qd, (nv,).
        f_ext: external forces [moment; force], (nbodies, 6), on each body, about its origin, in its axes.
        base_motion: pair (v0, a0) of the base frame's twist and the rate of its components, (6,) each, [angular;
            linear], in the base's own axes: like qd and qdd of a free joint that would carry the whole model. At
            the instant considered the base's axes are those of the world, and thus of gravity.

    Returns:
        tau, (nv,).

    Example:
        >>> import jaxdyn
        >>> from jaxdyn.algorithms import plain
        >>> model = jaxdyn.load("pendulum")
        >>> plain.inverse_dynamics(model, [0.0], [1.0], [0.0]).shape
        (1,)
    """
    (q, qd, qdd), f_ext, (V_0, A_0) = _arguments(model, f_ext, base_motion, q=q, qd=qd, qdd=qdd)
    tree = _tree(model, q, qd)
    V_J = tree.S @ qd  # 004 (2)
    V = _outward(tree, V_0, V_J)  # 004 (3)
    A = _outward(tree, A_0, tree.bias + _cross(V, V_J) + tree.S @ qdd)  # 004 (4)
    f = _times(tree.I, A) + _cross_force(V, _times(tree.I, V)) - f_ext  # 004 (5)
    f_J = _inward(tree, f)  # 004 (7)
    return model.armature * qdd + jnp.einsum("bij,bi->j", tree.S, f_J)  # 004 (8)


@jax.jit
def mass_matrix(model: Model, q: jax.Array) -> jax.Array:
    r"""Compute the mass matrix by the composite-rigid-body algorithm (004 section 3.2).

    .. math:: M_{ji} = S_j^T I^C_i S_i, \quad i \text{ in the subtree of } j

    The armature is on the diagonal. What a mimic joint moves is counted where it belongs, with the joint that it
    follows: M is G* M_tree G.

    Args:
        model: the model.
        q: configuration, (nq,).

    Returns:
        M, (nv, nv), symmetric.

    Example:
        >>> import jaxdyn
        >>> from jaxdyn.algorithms import plain
        >>> plain.mass_matrix(jaxdyn.load("double_pendulum"), [0.0, 1.0]).shape
        (2, 2)
    """
    (q,), _, _ = _arguments(model, None, None, q=q)
    tree = _tree(model, q, jnp.zeros(model.nv, q.dtype))
    I_C = {WORLD: jnp.zeros((6, 6), q.dtype)} | dict(enumerate(tree.I))
    for i, parent in reversed(list(enumerate(model.parents))):
        I_C[parent] += tree.X[i].T @ I_C[i] @ tree.X[i]  # 004 (9)
    # The force that gives composite body i the acceleration S_i is transmitted by all joints between i and the base.
    F = _rows(I_C) @ tree.S
    own, outboard = (jnp.einsum("bij,bik->jk", tree.S, f) for f in (F, _inward(tree, F) - F))  # 004 (10)
    return jnp.diag(model.armature) + own + outboard + outboard.T


@jax.jit
def forward_dynamics(
    model: Model, q: jax.Array, qd: jax.Array, tau: jax.Array, *, f_ext: Any = None, base_motion: Any = None
) -> jax.Array:
    r"""Compute the acceleration by the articulated-body algorithm (004 section 3.3).

    .. math:: M(q)\,\ddot q + C(q, \dot q) = \tau + J^T f_{ext}

    The armature, per joint, is added to :math:`D = S^T I^A S`. Mimic joints couple branches of the tree, for which the
    algorithm has no place: a model with mimic joints is solved with `mass_matrix` and `inverse_dynamics` instead.

    Args:
        model: the model; every joint must move some inertia.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        tau: generalised forces, (nv,).
        f_ext: external forces, (nbodies, 6); see `inverse_dynamics`.
        base_motion: pair (v0, a0) of the base's twist and its rate, (6,) each; see `inverse_dynamics`.

    Returns:
        qdd, (nv,).

    Example:
        >>> import jaxdyn
        >>> from jaxdyn.algorithms import plain
        >>> model = jaxdyn.load("pendulum")
        >>> plain.forward_dynamics(model, [0.0], [1.0], [0.0]).shape
        (1,)
    """
    (q, qd, tau), f_ext, (V_0, A_0) = _arguments(model, f_ext, base_motion, q=q, qd=qd, tau=tau)
    if model.topology.mimic_names:
        bias = inverse_dynamics(model, q, qd, jnp.zeros_like(qd), f_ext=f_ext, base_motion=base_motion)
        return _solve(mass_matrix(model, q), tau - bias)
    tree = _tree(model, q, qd)
    V_J = tree.S @ qd
    V = _outward(tree, V_0, V_J)  # 004 (3)
    c = tree.bias + _cross(V, V_J)
    P = {WORLD: jnp.zeros((6, 6), q.dtype)} | dict(enumerate(tree.I))
    p = {WORLD: jnp.zeros(6, q.dtype)} | dict(enumerate(_cross_force(V, _times(tree.I, V)) - f_ext))
    bodies = [(i, parent, model.qd_slice(model.joint_names[i])) for i, parent in enumerate(model.parents)]
    D = {}
    for i, parent, dof in reversed(bodies):
        X, S = tree.X[i], tree.S[i, :, dof]
        p[i] += P[i] @ c[i]  # p^alpha of 004
        D[i] = S.T @ P[i] @ S + jnp.diag(model.armature[dof])
        G = _solve(D[i], S.T @ P[i]).T
        P[parent] += X.T @ (P[i] - G @ S.T @ P[i]) @ X  # 004 (12)
        p[parent] += X.T @ (p[i] + G @ (tau[dof] - S.T @ p[i]))  # 004 (13)
    A, qdd = {WORLD: A_0}, []
    for i, parent, dof in bodies:
        X, S = tree.X[i], tree.S[i, :, dof]
        A_p = X @ A[parent]
        qdd += [_solve(D[i], tau[dof] - S.T @ (P[i] @ A_p + p[i]))]  # 004 (14)
        A[i] = A_p + c[i] + S @ qdd[i]  # 004 (4)
    return jnp.concatenate([*qdd, jnp.zeros(0, q.dtype)])


_solve = partial(jax.scipy.linalg.solve, assume_a="pos")  # by Cholesky


def _arguments(
    model: Model, f_ext: Any, base_motion: Any, **vectors: Any
) -> tuple[list[jax.Array], jax.Array, tuple[jax.Array, jax.Array]]:
    """Return vectors, external forces and motion of the base, checked and of one type; gravity is in the latter."""
    model.require_single(concrete=False)
    if base_motion is not None and len(base_motion) != 2:
        raise ValueError(f"base_motion must be a pair (v0, a0) of a twist and its rate; got {len(base_motion)} of them")
    v0, a0 = [jnp.zeros(6, model.dtype)] * 2 if base_motion is None else base_motion
    given = vectors | {"v0 of base_motion": v0, "a0 of base_motion": a0}
    size = {"q": model.nq, "qd": model.nv, "qdd": model.nv, "tau": model.nv}
    arrays = [_checks.vector(n, x, size.get(n, 6), "coordinate", model.dtype) for n, x in given.items()]
    forces = jnp.zeros((model.nbodies, 6), model.dtype) if f_ext is None else jnp.asarray(f_ext)
    if forces.shape != (model.nbodies, 6):
        raise ValueError(f"f_ext must have shape {(model.nbodies, 6)}, [moment; force] per body; got {forces.shape}")
    dtype = jnp.result_type(model.dtype, forces, *arrays)
    *state, v0, a0 = (x.astype(dtype) for x in arrays)
    # Uniform gravity is the base's acceleration upward: 004 section 3.1.
    return state, forces.astype(dtype), (v0, a0.at[3:].add(-model.gravity.astype(dtype)))
