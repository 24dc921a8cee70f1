r"""How the mass matrix changes with the configuration (002 section 6), and what follows from it.

All about one point, in common axes, with J the joints' columns, r the inertias of composite bodies and F = r J. A
change of the coordinate d turns everything outboard of it like a rigid body, by J_d. In axes that turn along, only
columns strictly inboard of d change: they turn backward. So M_d = Y + Y*, where for columns j strictly inboard of d

    Y_jl = J_j . (J_d x* F_l)       for l outboard of d, or on its body,
    Y_jl = J_j . A_d J_l / 2        for l strictly inboard of d,        A_d = J_d x* r_d - r_d J_d x

(A_d is the change of an inertia, so it has the form of one). To this comes the change N of columns that are not fixed
in their body.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.articulation import array_like, articulation, joint_motions, like_vector, tile_of_rows
from jaxdyn.algorithms.crba import mass_matrix
from jaxdyn.algorithms.motion import joint_columns, link_inertias, placed_links
from jaxdyn.joints import Joint, combine
from jaxdyn.model import Model
from jaxdyn.model.configuration import bracket
from jaxdyn.recursion import batched
from jaxdyn.spatial import Force, Mat3, Motion, RigidInertia, Sym3, Vec3
from jaxdyn.spatial.linear import skew

_NOTHING = RigidInertia(0.0, Vec3.zero(), Sym3.zero())


def _add(outboard: RigidInertia, M: RigidInertia) -> Any:
    total = outboard + M
    return total, total


def _turned(r: RigidInertia, J: Motion) -> RigidInertia:
    """Return the change J x* r - r J x of an inertia that moves by J."""
    w, v = J.ang, J.lin
    h = w.cross(r.h) + r.m * v
    turn = skew(w) @ r.J.full
    moved = skew(v) @ skew(r.h)
    return RigidInertia(0.0, h, (turn + turn.T - moved - moved.T).upper)


def _columns(model: Model, q: Any) -> Any:
    """Return of every column, (rows, columns, batch): J and F, six each, and A's h and J, nine.

    Besides, for joints whose columns are not fixed in the body, (width, 2, 6, columns, batch): the change N of its
    joint's k-th column along it, and r N.
    """
    joints = articulation(model.topology)
    links = joints.links(model, q)
    placed = placed_links(joints, links)
    H, M = joint_columns(links, placed), link_inertias(joints, model, links, placed)
    r = joints.walk.inward(_add, _NOTHING, [M_k.shift(m.p) for M_k, m in zip(M, placed, strict=True)])[1]
    J = [tuple(h.shift(-m.p) for h in hs) for hs, m in zip(H, placed, strict=True)]
    F = [tuple(r_k @ j for j in js) for js, r_k in zip(J, r, strict=True)]
    A = [tuple((a.h, a.J) for a in (_turned(r_k, j) for j in js)) for js, r_k in zip(J, r, strict=True)]
    rows = jax.tree.leaves([joints.spatial_columns(x, q.dtype) for x in (J, F, A)])
    return jnp.stack(jnp.broadcast_arrays(*rows)), _changes(model, q, placed, r)


def _changes(model: Model, q: Any, placed: Any, r: Any) -> jax.Array | None:
    """Return the second part of `_columns`, or None if all columns are fixed in their bodies."""
    joints = articulation(model.topology)
    still = jnp.zeros((model.nv, 1), q.dtype)
    slopes = [[slope.S for slope in stage] for stage in joints.subspace_slopes(model, q, still, still)]
    if all(type(x) is float for x in jax.tree.leaves(slopes)):
        return None
    width = max(stage.width for stage in joints.stages)
    of_k = lambda k: [
        tuple((S[k] if k < len(S) else Motion.zero()).rotate(m.R).shift(-m.p) for S in stage)
        for stage, m in zip(slopes, placed, strict=True)
    ]
    parts = []
    for k in range(width):
        N = of_k(k)
        rN = [tuple(r_k @ n for n in ns) for ns, r_k in zip(N, r, strict=True)]
        parts += [x for X in (N, rN) for x in jax.tree.leaves(joints.spatial_columns(X, q.dtype))]
    rows = jnp.stack(jnp.broadcast_arrays(*parts))
    return rows.reshape((width, 2, 6, *rows.shape[1:]))


def _tensor(parts: Any, model: Model, q: Any) -> jax.Array:
    """Return the derivatives of the mass matrix at one state."""
    columns, changes = parts
    J, F, A = columns[:6], columns[6:12], columns[12:]
    joints = articulation(model.topology)
    inboard = joints.inboard[joints.column_body]  # [l, d]: d moves the body of l
    strictly = inboard.T & ~inboard  # [l, d]: l moves the body of d, and is on another
    of_l = lambda rows: Vec3(*(x[:, None] for x in rows))
    of_d = lambda rows: Vec3(*(x[None] for x in rows))
    J_l, F_l = Motion(of_l(J[:3]), of_l(J[3:])), Force(of_l(F[:3]), of_l(F[3:]))
    J_d = Motion(of_d(J[:3]), of_d(J[3:]))
    A_d = RigidInertia(0.0, of_d(A[:3]), Sym3(*(x[None] for x in A[3:])))
    turned, moved = J_d.cross_force(F_l), A_d @ J_l
    G = jax.tree.map(lambda a, b: jnp.where(inboard, a, jnp.where(strictly, 0.5 * b, 0)), turned, moved)
    G = jax.lax.optimization_barrier(jnp.stack(jax.tree.leaves(G)))  # worked out once for all j
    Y = lambda j, l: sum(x.reshape(j) * g.reshape(l) for x, g in zip(J, G, strict=True))
    n = len(joints.column_body)
    first = jnp.where(strictly[:, None], Y((n, 1, 1), (1, n, n)), 0)
    tensor = first + jnp.where(strictly[None], Y((1, n, 1), (n, 1, n)), 0)
    if changes is not None:
        own = _own(joints, changes, J, F, inboard)
        tensor = tensor + own + jnp.swapaxes(own, 0, 1)
    return joints.fold(joints.fold(joints.fold(tensor, 0), 1), 2)


def _own(joints: Any, changes: jax.Array, J: Any, F: Any, inboard: np.ndarray) -> jax.Array:
    """Return N_j . r J_l, by (j, l, d), where the columns j and d are of one body."""
    n = len(joints.column_body)
    total = jnp.zeros((n, n, n), changes.dtype)
    for k, (N, rN) in enumerate(changes):
        outboard = sum(f[:, None] * x[None] for f, x in zip(F, N, strict=True))
        between = sum(j[:, None] * x[None] for j, x in zip(J, rN, strict=True))
        rows = jnp.where(inboard, outboard, jnp.where(inboard.T, between, 0))  # [l, d]
        index = joints.kth_of_same_body(k)
        there = np.flatnonzero(index >= 0)
        total = total.at[index[there], :, there].add(rows.T[there])
    return total


def _cross(inboard: Any, body: Any) -> Any:
    """Cross a joint outward with two velocities W and Y."""
    (R, W, Y), (X, W_J, Y_J, columns, M) = inboard, body
    l = R @ X.p
    R, W, Y = R @ X.R, W.shift(l), Y.shift(l)
    return _crossed(R, W, Y, W_J, Y_J, columns, M, l)


def _cross_base(world: Any, body: Any) -> Any:
    """Cross the joint of a floating base, into its own axes; the world is at rest."""
    X, W_J, Y_J, columns, M = body
    return _crossed(Mat3.identity(), Motion.zero(), Motion.zero(), W_J, Y_J, columns, M, X.p)


def _crossed(R: Any, W_p: Any, Y_p: Any, W_J: Any, Y_J: Any, columns: Any, M: Any, l: Any) -> Any:
    W, Y, M = W_p + W_J.rotate(R), Y_p + Y_J.rotate(R), M.rotate(R)
    turned = jax.tree.map(lambda x: x.rotate(R), columns, is_leaf=lambda x: isinstance(x, Motion))
    return (R, W, Y), (M @ W, M @ Y, W_p, Y_p, turned, l)


def _gather(outboard: Any, body: Any) -> Any:
    """Add up the momenta of what is outboard, and read x* M_d y (002 Identity 6.4)."""
    (P, F), ((P_own, F_own, W_p, Y_p, (H, changes), l), x, y) = outboard, body
    P, F = P + P_own, F + F_own
    found = tuple(
        F.dot(W_p.cross(J) + combine(N, x)) + P.dot(Y_p.cross(J) + combine(N, y))
        for J, N in zip(H, changes, strict=True)
    )
    return (P.shift(l), F.shift(l)), found


def _product(model: Model, q: Any, x: Any, y: Any) -> jax.Array:
    """Return x* M_d y by d, (nv, batch)."""
    joints = articulation(model.topology)
    links = joints.links(model, q)
    still = jnp.zeros((model.nv, 1), q.dtype)
    changes = [tuple(slope.S for slope in stage) for stage in joints.subspace_slopes(model, q, still, still)]
    columns = [(link.S, change) for link, change in zip(links, changes, strict=True)]
    rows_x, rows_y = joints.rows(x), joints.rows(y)
    W_J, Y_J = joint_motions(links, rows_x), joint_motions(links, rows_y)
    poses, inertias = [link.X for link in links], joints.inertias(model, links)
    bodies = list(zip(poses, W_J, Y_J, columns, inertias, strict=True))
    moved = joints.walk.outward(_cross, (Mat3.identity(), Motion.zero(), Motion.zero()), bodies, _cross_base)
    moving = list(zip(moved, rows_x, rows_y, strict=True))
    return joints.collect(joints.walk.inward(_gather, (Force.zero(), Force.zero()), moving)[1])


_tensor_of_state = batched(
    _columns,
    tile=tile_of_rows(per_body=100),
    last=_tensor,
    like=lambda model, q: array_like((model.nv,) * 3, model, q),
)
_product_of_state = batched(_product, tile=tile_of_rows(), like=lambda model, q, x, y: like_vector(x, model, q, y))


@arguments.compiled
def mass_matrix_sensitivity(model: Model, q: Any) -> jax.Array:
    r"""Compute the derivatives of the mass matrix by the configuration, in closed form (002 Identity 6.3).

    .. math:: M_{\theta,d} = Y_d + Y_d^*, \qquad Y_d = -H (\phi - I) X_d^* \phi M \phi^* H^*

    for columns that are fixed in their body; the others' change is added. The derivatives are in the tangent: along
    `integrate(model, q, eps * e_d)`.

    Args:
        model: the model.
        q: configuration, (nq,).

    Returns:
        (nv, nv, nv), [..., d] = dM / dq_d.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn.derivatives import mass_matrix_sensitivity
        >>> model, q, qd = jaxdyn.load("arm7"), jnp.ones(7), jnp.arange(7.0)
        >>> M_rate = mass_matrix_sensitivity(model, q) @ qd
        >>> C = jaxdyn.coriolis_matrix(model, q, qd)
        >>> bool(jnp.allclose(M_rate, C + C.T, atol=1e-4))
        True
    """
    (q,) = arguments.vectors(model, q=q)
    return _tensor_of_state(model, q) if model.nv else jnp.zeros((0, 0, 0), q.dtype)


@arguments.compiled
def mass_matrix_sensitivity_vp(model: Model, q: Any, x: Any, y: Any) -> jax.Array:
    r"""Compute the quadratic form of the mass matrix's derivatives with two vectors (002 Identity 6.4).

    .. math:: (x^* M_{\theta,d}\, y)_d

    Time is proportional to the number of bodies: the tensor is not formed.

    Args:
        model: the model.
        q: configuration, (nq,).
        x: (nv,).
        y: (nv,).

    Returns:
        (nv,), in the tangent.
    """
    q, x, y = arguments.vectors(model, q=q, x=x, y=y)
    return _product_of_state(model, q, x, y) if model.nv else x


@arguments.compiled
def christoffel_symbols(model: Model, q: Any) -> jax.Array:
    r"""Compute the Christoffel symbols of the first kind of the mass matrix.

    .. math:: \Gamma_{ijk} = \tfrac12 (\partial_k M_{ij} + \partial_j M_{ik} - \partial_i M_{jk})
        + \tfrac12 (M_{il} c^l_{jk} - M_{kl} c^l_{ji} - M_{jl} c^l_{ki}),
        \qquad [e_j, e_k] = c^l_{jk} e_l

    The structure constants c are those of velocities that are not derivatives of coordinates: spherical, planar and
    free joints. So for all joints :math:`\sum_j \Gamma_{ijk} v_j` is the Coriolis matrix C(q, v), and
    :math:`\Gamma_{ijk} v_j v_k` the bias force without gravity. Armature is a constant of M alone: next to c it is
    left out.

    Args:
        model: the model.
        q: configuration, (nq,).

    Returns:
        (nv, nv, nv), by i, j, k.
    """
    (q,) = arguments.vectors(model, q=q)
    dM = jax.lax.optimization_barrier(mass_matrix_sensitivity(model, q))
    symbols = 0.5 * (dM + jnp.swapaxes(dM, 1, 2) - jnp.moveaxis(dM, -1, 0))
    curved = [g.qd for g in model.topology.own_groups if type(g.joint).integrate is not Joint.integrate]
    if not curved:
        return symbols
    M = mass_matrix(model, q) - jnp.diag(model.armature.astype(q.dtype))
    A = _along_brackets(model, q, M, curved)
    return symbols + 0.5 * (A - jnp.swapaxes(A, 0, 2) - jnp.transpose(A, (2, 0, 1)))


def _along_brackets(model: Model, q: jax.Array, M: jax.Array, joints: list[np.ndarray]) -> jax.Array:
    """Return M_il c^l_jk by i, j, k, for joints given by indices (joints, width) of their velocities."""
    result = jnp.zeros((model.nv,) * 3, q.dtype)
    for index in joints:
        unit = (np.arange(model.nv)[None, :, None] == index.T[:, None]).any(-1)  # (width, nv), of all joints at once
        e = jnp.asarray(unit, q.dtype)
        of_pair = lambda a, b: bracket(model, q, a, b)
        c = jax.vmap(jax.vmap(of_pair, (None, 0)), (0, None))(e, e)[:, :, index]
        of_joints = jnp.einsum("jknl,inl->injk", c, M[:, index])
        result = result.at[:, index[:, :, None], index[:, None]].set(of_joints)
    return result
