r"""The curvature of the mass matrix as a metric (002 section 2), for velocities of every kind.

With e_k the directions in which the velocities qd are counted, [e_j, e_k] = c^l_jk e_l, and the symbols
Gamma_ijk = <D_j e_k, e_i> of the connection D that keeps the mass matrix constant and has no torsion,

    R_lijk = <D_j D_k e_i - D_k D_j e_i - D_[j,k] e_i, e_l>
           = d_j Gamma_lki - d_k Gamma_lji + Gamma_mji M^mn Gamma_nkl - Gamma_mki M^mn Gamma_njl - c^m_jk Gamma_lmi

For coordinates c is zero, and this is 002 (2.5).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve

from jaxdyn._compiling import jit
from jaxdyn._numerics import safe_reciprocal
from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.aba import mass_matrix_inverse, require_regular
from jaxdyn.algorithms.crba import mass_matrix
from jaxdyn.model import Model
from jaxdyn.model.configuration import bracket, integrate


def structure_constants(model: Model, q: jax.Array) -> jax.Array:
    """Return c^l_jk by l, j, k: how much e_l there is in [e_j, e_k]."""
    e = jnp.eye(model.nv, dtype=q.dtype)
    of_pair = lambda a, b: bracket(model, q, a, b)
    return jnp.moveaxis(jax.vmap(jax.vmap(of_pair, (None, 0)), (0, None))(e, e), 2, 0)


def connection(model: Model, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the mass matrix and, by i, j, k, its Christoffel symbols as a metric: <D_j e_k, e_i>.

    They are `christoffel_symbols`, and what armature adds to them. By automatic differentiation of the mass matrix in
    dense form, which compiles quickly, also where it is differentiated again.
    """

    def metric(dq: jax.Array) -> tuple[jax.Array, jax.Array]:
        M = mass_matrix(model, integrate(model, q, dq), form="dense")
        return M, M

    dM, M = jax.jacfwd(metric, has_aux=True)(jnp.zeros(model.nv, q.dtype))
    symbols = 0.5 * (dM + jnp.swapaxes(dM, 1, 2) - jnp.moveaxis(dM, -1, 0))
    return M, symbols + _of_brackets(jnp.einsum("il,ljk->ijk", M, structure_constants(model, q)))


def armature_symbols(model: Model, q: jax.Array) -> jax.Array:
    """Return by i, j, k what armature adds to the Christoffel symbols, next to structure constants.

    The equations of motion do not have it: there armature is a constant of M alone.
    """
    return _of_brackets(model.armature.astype(q.dtype)[:, None, None] * structure_constants(model, q))


def _of_brackets(A: jax.Array) -> jax.Array:
    """Return the part of the symbols that comes from A = <[e_j, e_k], e_i>."""
    return 0.5 * (A - jnp.swapaxes(A, 0, 2) - jnp.transpose(A, (2, 0, 1)))


def curvature_terms(model: Model, q: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """Return the mass matrix and three parts whose sum is R: of slopes, of products, and of structure constants."""

    def symbols(dq: jax.Array) -> Any:
        M, G = connection(model, integrate(model, q, dq))
        return G, (M, G)

    n = model.nv
    slopes, (M, G) = jax.jacfwd(symbols, has_aux=True)(jnp.zeros(n, q.dtype))
    along = jnp.transpose(slopes, (0, 2, 3, 1))  # l, i, j, k: d_j <D_k e_i, e_l>
    raised = cho_solve(cho_factor(M), G.reshape((n, n * n))).reshape((n, n, n))
    products = jnp.einsum("mji,mkl->lijk", raised, G)
    turned = jnp.einsum("mjk,lmi->lijk", structure_constants(model, q), G)
    antisymmetric = lambda T: T - jnp.swapaxes(T, 2, 3)
    return M, (antisymmetric(along), antisymmetric(products), -turned)


def riemann_symbols(model: Model, q: Any) -> jax.Array:
    r"""Compute the Riemann symbols of the first kind of the mass matrix: its curvature (002 (2.5)).

    .. math:: R_{lijk} = \langle (\nabla_j \nabla_k - \nabla_k \nabla_j - \nabla_{[j,k]})\, e_i,\; e_l \rangle

    They are all zero if and only if the robot has coordinates in which its mass matrix is constant (002 Lemma 2.2).
    The velocities of spherical, planar and free joints are not derivatives of coordinates; what their directions
    differ by in the order of moving is included, so that a free body has the curvature of its rotations although its
    mass matrix is constant. Armature is part of the metric. Of nv^4 symbols nv^2 (nv^2 - 1) / 12 are independent.

    Args:
        model: the model. All joints must move inertia.
        q: configuration, (nq,).

    Returns:
        (nv, nv, nv, nv), by l, i, j, k.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn.algorithms import curvature
        >>> R = curvature.riemann_symbols(jaxdyn.load("double_pendulum"), jnp.array([0.3, 0.7]))
        >>> R.shape, bool(jnp.allclose(R[0, 1, 0, 1], -R[0, 1, 1, 0])), bool(abs(R[0, 1, 0, 1]) > 1e-3)
        ((2, 2, 2, 2), True, True)
    """
    return _riemann_symbols(_regular(model), q)


def _regular(model: Model) -> Model:
    """Return what motion depends on, of a model whose mass matrix is a metric."""
    arguments.require_model(model)
    require_regular(model)
    return model.moving


@jit
def _riemann_symbols(model: Model, q: Any) -> jax.Array:
    (q,) = arguments.vectors(model, q=q)
    if not model.nv:
        return jnp.zeros((0, 0, 0, 0), q.dtype)
    return sum(curvature_terms(model, q)[1], jnp.zeros((), q.dtype))


def sectional_curvature(model: Model, q: Any, x: Any, y: Any) -> jax.Array:
    r"""Compute the curvature of the surface of motions along two velocities.

    .. math:: K = \frac{\langle R(x, y)\,y,\; x \rangle}{\langle x, x \rangle \langle y, y \rangle
              - \langle x, y \rangle^2}, \qquad \langle x, y \rangle = x^T M y

    Where it is positive, free motions that start apart in these directions draw together again; where it is negative,
    they part exponentially. For two degrees of freedom it is Gauss' curvature.

    Args:
        model: the model. All joints must move inertia.
        q: configuration, (nq,).
        x: velocity, (nv,).
        y: another one, (nv,).

    Returns:
        K, a scalar, 1/(kg m^2); zero where x and y are parallel.
    """
    model = _regular(model)
    q, x, y = arguments.vectors(model, q=q, x=x, y=y)
    M, R = mass_matrix(model, q), _riemann_symbols(model, q)
    area = (x @ M @ x) * (y @ M @ y) - (x @ M @ y) ** 2
    return jnp.einsum("lijk,l,i,j,k", R, x, y, x, y) * safe_reciprocal(area)


def scalar_curvature(model: Model, q: Any) -> jax.Array:
    r"""Compute the scalar curvature of the mass matrix.

    .. math:: S = M^{lj} M^{ik} R_{lijk}

    the sum of the sectional curvatures of all ordered pairs of orthonormal velocities. It does not depend on the
    coordinates in which the robot is described.

    Args:
        model: the model. All joints must move inertia.
        q: configuration, (nq,).

    Returns:
        S, a scalar, 1/(kg m^2).
    """
    model = _regular(model)
    (q,) = arguments.vectors(model, q=q)
    inverse = mass_matrix_inverse(model, q)
    return jnp.einsum("lijk,lj,ik", _riemann_symbols(model, q), inverse, inverse)
