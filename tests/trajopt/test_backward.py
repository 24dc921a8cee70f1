"""The backward pass: every form of it solves the linear-quadratic problem, with bounds and without, alone and in batches."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.optimize

from jaxdyn.trajopt.backward import Quadratic, box_minimum, by_associative_scan, by_scan, within_bounds


def random_problem(T=9, n=4, m=2, seed=0):
    rng = np.random.default_rng(seed)
    H = rng.normal(size=(T, n + m, n + m))
    H = H @ H.transpose(0, 2, 1) + 0.1 * np.eye(n + m)
    F = np.concatenate([np.eye(n) + 0.2 * rng.normal(size=(T, n, n)), rng.normal(size=(T, n, m))], axis=2)
    f, h, h_end = rng.normal(size=(T, n)), rng.normal(size=(T, n + m)), rng.normal(size=n)
    return Quadratic(*(jnp.asarray(x) for x in (F, f, h, H, h_end, np.eye(n))))


def minimum(lq, lower=None, upper=None):
    """Cost and inputs by one least-squares problem in all inputs, without any recursion."""
    T, n = lq.f.shape
    m = lq.F.shape[2] - n

    def total(us):
        x, value = jnp.zeros(n), 0.0
        for i in range(T):
            z = jnp.concatenate([x, us[i * m : (i + 1) * m]])
            value = value + 0.5 * z @ lq.H[i] @ z + lq.h[i] @ z
            x = lq.F[i] @ z + lq.f[i]
        return value + 0.5 * x @ lq.H_end @ x + lq.h_end @ x

    zero = jnp.zeros(T * m)
    g, H = (np.asarray(d) for d in jax.jit(lambda u: (jax.grad(total)(u), jax.hessian(total)(u)))(zero))
    root = np.linalg.cholesky(H)
    bounds = (-np.inf, np.inf) if lower is None else (lower, upper)
    us = scipy.optimize.lsq_linear(root.T, -scipy.linalg.solve_triangular(root, g, lower=True), bounds, tol=1e-14).x
    return float(total(us) - total(zero)), us.reshape(T, m)


def rolled_out(lq, policy, lower=-np.inf, upper=np.inf):
    x, us = jnp.zeros(lq.f.shape[1]), []
    for i in range(lq.f.shape[0]):
        us.append(jnp.clip(policy.k[i] + policy.K[i] @ x, lower, upper))
        x = lq.F[i] @ jnp.concatenate([x, us[-1]]) + lq.f[i]
    return np.stack(us)


def test_backward_passes_solve_the_problem():
    """Against one dense least-squares problem; the two passes agree to rounding."""
    lq = random_problem()
    us = minimum(lq)[1]
    one, two = (jax.jit(f)(lq, 0.0) for f in (by_scan, by_associative_scan))
    np.testing.assert_allclose(rolled_out(lq, one), us, atol=1e-9)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10, rtol=1e-10)
    still = lq._replace(f=0 * lq.f)  # without gaps, the change is from a motion that does not move
    np.testing.assert_allclose(jax.jit(by_scan)(still, 0.0).change, minimum(still)[0], rtol=1e-10)


def test_backward_pass_of_a_batch():
    """It is that of one problem after the other; one that has no minimum is not finite, and leaves the others alone."""
    one, two = random_problem(), random_problem(seed=5)
    none = one._replace(H=one.H.at[0].multiply(-1e3))
    lqs = jax.tree.map(lambda *x: jnp.stack(x), one, two, none)
    for weights, axis in ((jnp.array([0.0, 0.1, 0.0]), 0), (0.1, None)):
        many = jax.jit(jax.vmap(by_scan, in_axes=(0, axis)))(lqs, weights)
        for i, lq in enumerate((one, two)):
            alone = jax.jit(by_scan)(lq, jnp.broadcast_to(weights, 3)[i])
            for a, b in zip(alone, many, strict=True):
                np.testing.assert_allclose(b[i], a, rtol=1e-10, atol=1e-10)
        assert not np.isfinite(many.change[2])


def test_box_minimum():
    """Against scipy's solver of bounded least squares."""
    rng = np.random.default_rng(1)
    R, g = rng.normal(size=(20, 5, 5)), 3 * rng.normal(size=(20, 5))
    H = R.transpose(0, 2, 1) @ R + 0.05 * np.eye(5)
    found, free = jax.vmap(lambda H, g: box_minimum(H, g, -jnp.ones(5), jnp.ones(5), jnp.zeros(5)))(H, jnp.asarray(g))
    for i in range(20):
        root = np.linalg.cholesky(H[i])
        right = -scipy.linalg.solve_triangular(root, g[i], lower=True)
        want = scipy.optimize.lsq_linear(root.T, right, (-1, 1), tol=1e-14).x
        np.testing.assert_allclose(found[i], want, atol=1e-7)
    assert (np.asarray(free) == (np.abs(np.asarray(found)) < 1)).all()
    assert 0 < np.asarray(free).mean() < 1


def test_bounds_that_are_far_away():
    """With them the policy is that without, also after many steps of dynamics that amplify what is not symmetric."""
    T, far = 200, jnp.full((200, 2), 1e6)
    lq = random_problem(T=T, seed=3)
    lq = lq._replace(H=1e-3 * lq.H, F=jnp.tile(lq.F[:1], (T, 1, 1)), f=0 * lq.f)
    one, two = jax.jit(by_scan)(lq, 0.0), jax.jit(within_bounds)(lq, 0.0, -far, far)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-8, atol=1e-8 * float(jnp.abs(a).max()))


def test_one_step_within_bounds():
    lq = random_problem(T=1)
    bound = jnp.full((1, 2), 0.05)
    policy = within_bounds(lq, 0.0, -bound, bound)
    us = minimum(lq, -0.05, 0.05)[1]
    np.testing.assert_allclose(policy.k, us, atol=1e-9)
