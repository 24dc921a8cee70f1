"""The physical inertia nearest to any other: that it is the nearest, and its derivatives of every order."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from helpers.bodies import (
    DTYPES,
    box,
    clouds,
    eigenvalues,
    random_theta,
    rotation,
    turned,
)
from helpers.states import quickly, relative

from jaxdyn.model import (
    from_log_cholesky,
    from_pseudo_inertia,
    log_cholesky,
    project_physical,
    pseudo_inertia,
)


def frobenius(pi):
    """Return the norm of the pseudo-inertia."""
    return np.linalg.norm(np.asarray(pseudo_inertia(pi)), axis=(-2, -1))


def spoiled(seed, n):
    """Return inertias of no body: symmetric matrices with eigenvalues of either sign."""
    A = np.random.default_rng(seed).normal(size=(n, 4, 4))
    return np.asarray(from_pseudo_inertia(A + np.swapaxes(A, 1, 2)))


def test_no_physical_inertia_is_nearer_than_the_projection():
    """Neither among random ones, nor any at all: a convex set lies behind the plane through its nearest point."""
    margin, bad = 0.1, spoiled(12, 30)
    near = np.asarray(project_physical(bad, margin=margin))
    assert (np.abs(eigenvalues(near).min(-1) - margin) < 2e-15 * frobenius(bad)).all()
    theta = np.concatenate([random_theta(13, 300), random_theta(14, 300) * 0.1])
    allowed = np.asarray(from_pseudo_inertia(pseudo_inertia(from_log_cholesky(theta)) + margin * np.eye(4)[None]))
    P, X, Y = (np.asarray(pseudo_inertia(pi)) for pi in (bad, near, allowed))
    assert (frobenius(bad - near)[:, None] <= np.linalg.norm(P[:, None] - Y, axis=(-2, -1))).all()
    slope = np.einsum("aij,abij->ab", P - X, Y[None] - X[:, None])
    assert slope.max() < 1e-13
    shrunk = near[:, None] + 1e-4 * (allowed - near[:, None])  # near the nearest
    assert (frobenius(bad[:, None] - shrunk) > frobenius(bad - near)[:, None] - 1e-14).all()


@DTYPES
def test_projection_leaves_physical_inertias_alone(dtype):
    pi = clouds(15, 30).astype(dtype)
    assert (eigenvalues(pi)[:, 0] > 1e-5).all()
    np.testing.assert_array_equal(project_physical(pi), pi)
    once = project_physical(spoiled(16, 30).astype(dtype), margin=1e-2)
    assert once.dtype == dtype
    assert relative(project_physical(once, margin=1e-2), once) < 10 * np.finfo(dtype).eps
    np.testing.assert_array_equal(project_physical(np.zeros((2, 10), dtype)), np.zeros((2, 10)))
    each = project_physical(spoiled(16, 2), margin=np.array([0.1, 0.2]))
    assert relative(eigenvalues(each).min(-1), [0.1, 0.2]) < 1e-13


@DTYPES
def test_what_was_projected_has_coordinates(dtype):
    """Without a margin given, also of plates, rods, points and what is of no body at all."""
    flat = [turned(rotation(i), box(i + 1.0, s, c)) for i, (s, c) in enumerate(
        [((1, 1, 0), (0, 0, 0)), ((1, 0, 0), (1, 2, 3)), ((0, 0, 0), (0.1, 2, 0)), ((0.3, 0.1, 0), (1, 1, 1))] * 20)]  # fmt: skip
    pi = np.concatenate([np.stack(flat), spoiled(17, 200), 1e-6 * spoiled(18, 200)]).astype(dtype)
    near = project_physical(pi)
    assert np.isfinite(log_cholesky(near)).all()
    assert np.isfinite(jax.vmap(jax.grad(lambda p: log_cholesky(p).sum()))(near)).all()


def through_eigh(pi, margin):
    """Project as one would without the rule for functions of matrices."""
    w, V = jnp.linalg.eigh(pseudo_inertia(pi))
    return from_pseudo_inertia((V * jnp.maximum(w, margin)[None]) @ V.T)


def test_derivatives_of_the_projection_at_distinct_eigenvalues():
    """Against automatic differentiation through the eigenvectors; those of third order against differences."""
    pi, margin, v = spoiled(19, 4), 0.1, np.random.default_rng(20).normal(size=10)
    assert (np.diff(eigenvalues(pi), axis=-1) > 0.05).all()

    ours = lambda x, mu: project_physical(x, margin=mu)

    @quickly
    def orders(x):
        def both(f):
            first = jax.jacrev(f)
            return f(x, margin), first(x, margin), jax.jacfwd(first)(x, margin), jax.jacfwd(f, 1)(x, margin)

        return both(ours), both(through_eigh)

    for x in pi:
        for order, (a, b) in enumerate(zip(*orders(x), strict=True)):
            assert relative(a, b) < 1e-10, order

    derivative = lambda f: lambda x: jax.jvp(f, (x,), (v,))[1]
    second = derivative(derivative(partial(project_physical, margin=margin)))
    third, before, after = quickly(
        jax.vmap(lambda x: (derivative(second)(x), second(x - 1e-5 * v), second(x + 1e-5 * v)))
    )(pi)
    assert relative(third, (after - before) / 2e-5) < 1e-6


def test_derivatives_of_the_projection_at_repeated_eigenvalues():
    """They are what differences give; through the eigenvectors they are NaN or wrong."""
    Q = np.linalg.qr(np.random.default_rng(21).normal(size=(4, 4)))[0]
    pi = np.stack(
        [from_pseudo_inertia(Q @ np.diag(w) @ Q.T) for w in ([-1, -1, 2, 2], [-1, 2, 2, 2], [-1, -1, -1, 3.0])]
    )
    directions = np.random.default_rng(22).normal(size=(5, 10))
    f = project_physical

    def along(x, v):
        first = lambda x: jax.jvp(f, (x,), (v,))[1]
        return first(x), jax.jvp(first, (x,), (v,))[1], jax.grad(lambda x: jax.grad(lambda x: f(x) @ v)(x) @ v)(x)

    first, second, reverse = quickly(jax.vmap(jax.vmap(along, (None, 0)), (0, None)))(pi, directions)
    h, v = 1e-4, directions[None]
    at = lambda t: np.asarray(f(pi[:, None] + t * h * v))
    assert relative(first, (at(1) - at(-1)) / (2 * h)) < 1e-6
    assert relative(second, (at(1) - 2 * at(0) + at(-1)) / h**2) < 1e-5
    contracted = lambda x: np.einsum("abi,bi->ab", x, directions)
    assert relative(contracted(reverse), contracted(second)) < 1e-12
    near = f(pi[0], margin=0.1)  # at the margin up to rounding: taken as it is
    first, second = quickly(lambda x: (jax.jacrev(f)(x, margin=0.1), jax.hessian(f)(x, margin=0.1)))(near)
    np.testing.assert_array_equal(first, np.eye(10))
    assert not second.any()
    # Whether the eigenvalues are equal to the last bit (then NaN) or not (then digits are lost) depends on the machine.
    ours, through = (np.asarray(jax.jacrev(g)(pi[0])) for g in (f, lambda x: through_eigh(x, 0.0)))
    assert not np.abs(through - ours).max() < 1e-6
