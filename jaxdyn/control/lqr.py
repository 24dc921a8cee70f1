r"""Linear-quadratic regulators: about a trajectory, with gains that change in time, and about a pose at rest.

States are (q, qd) on the manifold. Deviations :math:`x = (q \ominus q_i,\ \dot q - \dot q_i)` are vectors (2 nv,) in
the tangent of the reference, as `jaxdyn.simulate.linearize_trajectory` has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve

from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.energy import passive_force
from jaxdyn.algorithms.rnea import gravity_force
from jaxdyn.control.status import Status
from jaxdyn.model import Model, difference
from jaxdyn.simulate import Trajectory, linearize_trajectory


class Regulator(NamedTuple):
    """A linear feedback u = K x."""

    gains: jax.Array
    """(T, nu, nx), or (nu, nx): K."""
    cost_to_go: jax.Array
    """(T + 1, nx, nx), or (nx, nx): S, such that x* S x is what is still to be paid from x."""
    status: jax.Array
    """A `Status`: SOLVED; ITERATIONS if the system cannot be brought to rest; NOT_FINITE."""


@jax.jit
def lqr(A: Any, B: Any, Q: Any, R: Any, Q_final: Any) -> Regulator:
    r"""Solve a linear-quadratic problem over a finite horizon (Riccati).

    .. math:: \min \sum_{i<T} (x_i^T Q x_i + u_i^T R u_i) + x_T^T Q_T x_T, \qquad x_{i+1} = A_i x_i + B_i u_i

    Args:
        A: (T, nx, nx).
        B: (T, nx, nu).
        Q: (nx, nx), or (T, nx, nx), positive semidefinite.
        R: (nu, nu), or (T, nu, nu), positive definite.
        Q_final: (nx, nx), positive semidefinite.

    Returns:
        The optimal feedback :math:`u_i = K_i x_i`, and what it costs from each state on.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> A, B = (
        ...     jnp.tile(jnp.array([[1.0, 0.1], [0.0, 1.0]]), (50, 1, 1)),
        ...     jnp.tile(jnp.array([[0.0], [0.1]]), (50, 1, 1)),
        ... )
        >>> jaxdyn.control.lqr(A, B, jnp.eye(2), jnp.eye(1), jnp.eye(2)).gains.shape
        (50, 1, 2)
    """
    A, B, Q_final = (jnp.asarray(x) for x in (A, B, Q_final))
    if A.ndim != 3 or A.shape[1] != A.shape[2]:
        raise ValueError(f"A must have shape (T, nx, nx); got {A.shape}")
    T, n, _ = A.shape
    if B.ndim != 3 or B.shape[:2] != (T, n):
        raise ValueError(f"B must have shape ({T}, {n}, nu); got {B.shape}")
    m = B.shape[2]
    if Q_final.shape != (n, n):
        raise ValueError(f"Q_final must have shape ({n}, {n}); got {Q_final.shape}")
    Q, R = (_of_steps(name, x, T, k) for name, x, k in (("Q", Q, n), ("R", R, m)))

    def back(S: jax.Array, step: Any) -> Any:
        A, B, Q, R = step
        K = _gain(A, B, R, S)
        closed = A + B @ K
        S = closed.T @ S @ closed + K.T @ R @ K + Q  # Joseph's form: symmetric and positive, whatever K is
        return (S + S.T) / 2, (K, (S + S.T) / 2)

    _, (K, S) = jax.lax.scan(back, Q_final, (A, B, Q, R), reverse=True)
    S = jnp.concatenate([S, Q_final[None]])
    return _checked(K, S, jnp.array(True))


@jax.jit
def lqr_infinite(A: Any, B: Any, Q: Any, R: Any) -> Regulator:
    r"""Solve a linear-quadratic problem without end (the discrete algebraic Riccati equation).

    .. math:: S = Q + A^T S A - A^T S B\,(R + B^T S B)^{-1} B^T S A

    by doubling: each of 40 iterations squares the number of steps of the horizon (Chu, Fan, Lin, Wang 2004).

    Args:
        A: (nx, nx).
        B: (nx, nu).
        Q: (nx, nx), positive semidefinite.
        R: (nu, nu), positive definite.

    Returns:
        The optimal feedback u = K x. Its status is ITERATIONS if what is not brought to rest by it remains: the system
        is not stabilisable, or Q does not see what grows.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> A, B = jnp.array([[1.0, 0.1], [0.0, 1.0]]), jnp.array([[0.0], [0.1]])
        >>> found = jaxdyn.control.lqr_infinite(A, B, jnp.eye(2), jnp.eye(1))
        >>> bool(jnp.all(jnp.abs(jnp.linalg.eigvals(A + B @ found.gains)) < 1))
        True
    """
    A, B, Q, R = (jnp.asarray(x) for x in (A, B, Q, R))
    n = len(A)
    for name, x, shape in (("A", A, (n, n)), ("B", B, (n, *B.shape[1:2])), ("Q", Q, (n, n)), ("R", R, B.shape[1:] * 2)):
        if x.shape != shape or x.ndim != 2:
            raise ValueError(f"{name} must have shape {shape}; got {x.shape}")
    one = jnp.eye(n, dtype=A.dtype)

    def double(carry: Any, _: Any) -> Any:
        A, G, S = carry
        W = jnp.linalg.solve(one + G @ S, jnp.concatenate([A, G], axis=1))  # (1 + G S)^-1 [A, G]
        WA, WG = W[:, :n], W[:, n:]
        after = A @ WA, G + A @ WG @ A.T, S + A.T @ S @ WA
        sound = jnp.all(jnp.array([jnp.isfinite(x).all() for x in after]))
        return jax.tree.map(lambda new, old: jnp.where(sound, new, old), after, carry), None

    G = B @ cho_solve(cho_factor(R), B.T)
    (rest, _, S), _ = jax.lax.scan(double, (A, G, Q), length=40)
    S = (S + S.T) / 2
    return _checked(_gain(A, B, R, S), S, jnp.abs(rest).max() < jnp.finfo(A.dtype).eps ** 0.25)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Feedback:
    """A linear feedback about a reference: a policy, and a pytree to be handed on, batched and differentiated."""

    model: Model
    t0: jax.Array
    dt: jax.Array
    q: jax.Array
    """(T + 1, nq) the reference."""
    qd: jax.Array
    """(T + 1, nv)."""
    tau: jax.Array
    """(T, nv) its joint forces."""
    gains: jax.Array
    """(T, nv, 2 nv): what is added to them is K (q - reference, qd - reference)."""
    cost_to_go: jax.Array
    """(T + 1, 2 nv, 2 nv)."""
    status: jax.Array
    """A `Status`."""

    def __call__(self, t: Any, q: Any, qd: Any, params: Any = None) -> jax.Array:
        """Return the joint forces at a time and state, (nv,); after the last row they are those of the last row."""
        i = jnp.round((jnp.asarray(t) - self.t0) / self.dt).astype(jnp.int32)
        i = jnp.clip(i, 0, self.tau.shape[0] - 1)
        return self.tau[i] + self.gains[i] @ self.deviation(i, q, qd)

    def deviation(self, i: Any, q: Any, qd: Any) -> jax.Array:
        """Return how far a state is from row i of the reference, (2 nv,)."""
        q, qd = arguments.vectors(self.model, q=q, qd=qd)
        return jnp.concatenate([difference(self.model, self.q[i], q), qd - self.qd[i]])


def follow(t: Any, q: jax.Array, qd: jax.Array, feedback: Feedback) -> jax.Array:
    """Return the joint forces of a feedback: a policy for `rollout(..., follow, params=feedback)`."""
    return feedback(t, q, qd)


def trajectory_lqr(
    model: Model,
    trajectory: Trajectory,
    tau: Any,
    *,
    dt: Any,
    state_weight: Any = 1.0,
    input_weight: Any = 1.0,
    final_weight: Any = None,
    actuated: Any = None,
    **linearization: Any,
) -> Feedback:
    r"""Compute the optimal linear feedback along a trajectory, to first order.

    .. math:: \min \sum_{i<T} (x_i^T Q x_i + \delta\tau_i^T R\,\delta\tau_i) + x_T^T Q_T x_T, \qquad
        x = (q \ominus q_i,\ \dot q - \dot q_i)

    Args:
        model: the model.
        trajectory: the reference, as `rollout` returns it with `save_every=1`.
        tau: its joint forces, (T, nv).
        dt: time step, s.
        state_weight: Q: a number, (2 nv,), configuration then velocity, or (2 nv, 2 nv).
        input_weight: R, positive: a number, or one per driven degree of freedom, (nu,), or (nu, nu).
        final_weight: Q_T, as `state_weight`, which it is if not given.
        actuated: indices of the degrees of freedom that are driven, or (nv,) of booleans; all if not given. The
            others get no feedback: a floating base, the pole of a cart.
        **linearization: `integrator`, `f_ext`, `limits` and `params` of the rollout, as in
            `jaxdyn.simulate.linearize_trajectory`.

    Returns:
        The feedback, a policy (t, q, qd, params).

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn import control
        >>> model, x = jaxdyn.load("double_pendulum"), jnp.zeros(2)
        >>> tau = jnp.ones((20, 2))
        >>> run = jaxdyn.rollout(model, x, x, tau, dt=0.01)
        >>> feedback = control.trajectory_lqr(model, run, tau, dt=0.01, state_weight=10.0, input_weight=0.1)
        >>> jaxdyn.rollout(model, x + 0.1, x, control.follow, params=feedback, dt=0.01, steps=20).q.shape
        (21, 2)
    """
    arguments.require_model(model)
    driven = _driven(model, actuated)
    A, B = linearize_trajectory(model, trajectory, tau, dt=dt, **linearization)
    if not len(A):
        raise ValueError("trajectory must have at least one step; it has one state")
    Q, R = _weights(A.dtype, model, driven, state_weight, input_weight)
    Q_final = Q if final_weight is None else _matrix("final_weight", final_weight, 2 * model.nv, A.dtype)
    found = lqr(A, B[:, :, driven], Q, R, Q_final)
    return _feedback(model, trajectory.t[0], dt, trajectory.q, trajectory.qd, tau, found, driven)


def equilibrium_lqr(
    model: Model,
    q: Any,
    *,
    dt: Any,
    tau: Any = None,
    state_weight: Any = 1.0,
    input_weight: Any = 1.0,
    actuated: Any = None,
    **linearization: Any,
) -> Feedback:
    """Compute the optimal linear feedback that keeps a robot at rest in a configuration, without end.

    Args:
        model: the model.
        q: configuration, (nq,), in which the robot is at rest under `tau`.
        dt: time step of the loop, s.
        tau: joint forces that hold it there, (nv,); those against gravity and springs if not given.
        state_weight: as in `trajectory_lqr`.
        input_weight: as in `trajectory_lqr`.
        actuated: as in `trajectory_lqr`.
        **linearization: as in `trajectory_lqr`.

    Returns:
        The feedback, a policy (t, q, qd, params) with one row.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn import control
        >>> model = jaxdyn.load("cartpole")
        >>> upright = jnp.array([0.0, jnp.pi])
        >>> balance = control.equilibrium_lqr(model, upright, dt=0.01, actuated=[0])
        >>> int(balance.status) == control.Status.SOLVED
        True
    """
    (q,) = arguments.vectors(model, q=q)
    rest = jnp.zeros(model.nv, q.dtype)
    if tau is None:
        tau = gravity_force(model, q) - passive_force(model, q, rest)
    _, tau = arguments.vectors(model, q=q, tau=tau)
    driven = _driven(model, actuated)
    known = not any(isinstance(x, jax.core.Tracer) for x in (tau, q))
    if known and actuated is not None:
        passive = np.delete(np.asarray(tau), driven)
        if np.abs(passive).max(initial=0) > 1e-3 * max(1.0, float(np.abs(tau).max())):
            raise ValueError(
                f"the robot is not at rest in q: degrees of freedom that are not driven need forces {passive.tolist()}"
            )
    still = Trajectory(jnp.zeros(2, q.dtype), jnp.stack([q, q]), jnp.stack([rest, rest]))
    A, B = linearize_trajectory(model, still, tau[None], dt=dt, **linearization)
    Q, R = _weights(A.dtype, model, driven, state_weight, input_weight)
    found = lqr_infinite(A[0], B[0][:, driven], Q, R)
    found = found._replace(gains=found.gains[None], cost_to_go=jnp.stack([found.cost_to_go] * 2))
    return _feedback(model, 0.0, dt, still.q, still.qd, tau[None], found, driven)


# ---------------------------------------------------------------------- details
def _gain(A: jax.Array, B: jax.Array, R: jax.Array, S: jax.Array) -> jax.Array:
    BS = B.T @ S
    return -cho_solve(cho_factor(R + BS @ B), BS @ A)


def _checked(K: jax.Array, S: jax.Array, converged: jax.Array) -> Regulator:
    """Return a regulator with its status; gains that are not finite are zero."""
    sound = jnp.isfinite(K).all() & jnp.isfinite(S).all()
    status = jnp.where(sound, jnp.where(converged, Status.SOLVED, Status.ITERATIONS), Status.NOT_FINITE)
    return Regulator(jnp.where(sound, K, 0), jnp.where(sound, S, 0), status)


def _of_steps(name: str, x: Any, T: int, k: int) -> jax.Array:
    x = jnp.asarray(x)
    if x.shape not in ((k, k), (T, k, k)):
        raise ValueError(f"{name} must have shape ({k}, {k}), or ({T}, {k}, {k}); got {x.shape}")
    return jnp.broadcast_to(x, (T, k, k))


def _matrix(name: str, value: Any, size: int, dtype: Any, *, least: float = -1e-9) -> jax.Array:
    """Return a weight as a symmetric matrix; where it is known, it must be positive enough."""
    x = jnp.asarray(value, dtype)
    if x.shape not in ((), (size,), (size, size)):
        raise ValueError(f"{name} must be a number, ({size},) or ({size}, {size}); got {x.shape}")
    x = x if x.ndim == 2 else jnp.diag(jnp.broadcast_to(x, (size,)))
    if size and not isinstance(x, jax.core.Tracer):
        known = np.asarray(x, np.float64)
        if (
            not np.isfinite(known).all()
            or np.linalg.eigvalsh((known + known.T) / 2).min() <= least * np.abs(known).max()
        ):
            wanted = "positive definite" if least == 0 else "positive semidefinite"
            raise ValueError(f"{name} must be {wanted}; got {known.tolist() if size < 7 else 'a matrix that is not'}")
    return (x + x.T) / 2


def _weights(
    dtype: Any, model: Model, driven: np.ndarray, state_weight: Any, input_weight: Any
) -> tuple[jax.Array, jax.Array]:
    Q = _matrix("state_weight", state_weight, 2 * model.nv, dtype)
    return Q, _matrix("input_weight", input_weight, len(driven), dtype, least=0)


def _driven(model: Model, actuated: Any) -> np.ndarray:
    """Return the indices of the degrees of freedom that are driven."""
    if actuated is None:
        return np.arange(model.nv)
    chosen = np.asarray(actuated)
    if chosen.dtype == bool and chosen.shape == (model.nv,):
        return np.flatnonzero(chosen)
    inside = (
        chosen.ndim == 1 and chosen.dtype.kind in "iu" and len(chosen) and chosen.min() >= 0 and chosen.max() < model.nv
    )
    if not inside or len(set(chosen.tolist())) < len(chosen):
        raise ValueError(
            f"actuated must be different indices from 0 to {model.nv - 1}, or ({model.nv},) of booleans; "
            f"got {actuated!r}"
        )
    return chosen


def _feedback(
    model: Model, t0: Any, dt: Any, q: Any, qd: Any, tau: Any, found: Regulator, driven: np.ndarray
) -> Feedback:
    K = jnp.zeros((len(found.gains), model.nv, 2 * model.nv), found.gains.dtype).at[:, driven].set(found.gains)
    t0, dt, q, qd, tau = (jnp.asarray(x, K.dtype) for x in (t0, dt, q, qd, tau))
    return Feedback(model, t0, dt, q, qd, tau, K, found.cost_to_go, found.status)
