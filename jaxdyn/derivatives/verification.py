"""The check of all derivatives on a user's own robot: analytic, forward, reverse, and by central differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn.algorithms as dynamics
from jaxdyn._checks import suggestion
from jaxdyn._compiling import ONCE
from jaxdyn.algorithms import arguments, frame_slopes, regressor, sensitivity, slopes
from jaxdyn.derivatives import manifold, second_order
from jaxdyn.model import Model, difference, integrate, physical, random_configuration, with_inertial_parameters
from jaxdyn.model.consistency import massless_joints_of
from jaxdyn.operators import spatial_operators

AUTODIFF, DIFFERENCES = 1e-8, 1e-4
"""Largest relative differences that are accepted: to automatic differentiation, and to central differences."""
STEP = 1e-5


class Row(NamedTuple):
    """The derivatives of one function: largest relative differences between the analytic ones and others."""

    name: str
    forward: float
    """To forward mode."""
    reverse: float
    """To reverse mode."""
    differences: float
    """To central differences."""

    @property
    def ok(self) -> bool:
        """Whether they agree; NaN does not."""
        return max(self.forward, self.reverse) <= AUTODIFF and self.differences <= DIFFERENCES


class Verification(NamedTuple):
    """What `verify` found."""

    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """Whether all agree."""
        return all(row.ok for row in self.rows)

    def __str__(self) -> str:
        return "\n".join([HEADER, *(line_of(row) for row in self.rows)])


HEADER = f"{'derivatives of':36} {'forward':>10} {'reverse':>10} {'differences':>12}"


def line_of(row: Row) -> str:
    """Return a row as text, under `HEADER`."""
    verdict = "" if row.ok else "   differ"
    return f"{row.name:36} {row.forward:>10.1e} {row.reverse:>10.1e} {row.differences:>12.1e}{verdict}"


class Case(NamedTuple):
    """A function of vectors at one state, and its derivatives in closed form, one for each vector."""

    function: Callable[..., Any]
    at: tuple[jax.Array, ...]
    """The vectors; changes of a configuration are zero."""
    analytic: Callable[[], Any]
    """An array, or a tuple of as many as there are vectors."""


class State(NamedTuple):
    """A random state."""

    q: jax.Array
    qd: jax.Array
    qdd: jax.Array
    tau: jax.Array
    x: jax.Array
    theta: jax.Array
    """Log-Cholesky coordinates of some bodies, (nbodies, 10)."""


def _cases(model: Model) -> dict[str, Callable[[State], Case]]:
    """Return all that is checked, by name; nothing of a model that cannot move."""
    if not model.nv:
        return {}
    frame = model.body_names[-1]

    def by_state(f: Callable[..., Any], derivatives: Callable[..., Any], *names: str) -> Callable[[State], Case]:
        """Return the case of a function of q and some vectors of the state."""

        def case(s: State) -> Case:
            rest = tuple(getattr(s, name) for name in names)
            at = (jnp.zeros_like(s.qd), *rest)
            moved = lambda dq, *rest: f(model, integrate(model, s.q, dq), *rest)
            return Case(moved, at, lambda: derivatives(model, s.q, *rest))

        return case

    def by_inertia(f: Callable[..., Any], matrix: Callable[..., Any], *names: str) -> Callable[[State], Case]:
        """Return the case of a function of the inertial parameters."""

        def case(s: State) -> Case:
            rest = tuple(getattr(s, name) for name in names)
            of = lambda pi: f(with_inertial_parameters(model, pi.reshape((-1, 10))), s.q, *rest)
            return Case(of, (model.inertia.ravel(),), lambda: matrix(model, s.q, *rest))

        return case

    def velocity_of_frame(model: Model, q: Any, qd: Any) -> Any:
        return dynamics.frame_velocity(model, q, qd, frame)

    def acceleration_of_frame(model: Model, q: Any, qd: Any, qdd: Any) -> Any:
        return dynamics.frame_acceleration(model, q, qd, qdd, frame)

    def gravity_energy(model: Model, q: Any) -> Any:
        return dynamics.potential_energy(model.replace(stiffness=jnp.zeros_like(model.stiffness)), q)

    def momentum_about_origin(model: Model, q: Any, qd: Any) -> Any:
        h, c = dynamics.centroidal_momentum(model, q, qd), dynamics.center_of_mass(model, q)
        return jnp.concatenate([h[:3] + jnp.cross(c, h[3:]), h[3:]])

    def accelerations_by_inertia(model: Model, q: Any, qd: Any, tau: Any) -> Any:
        qdd = dynamics.forward_dynamics(model, q, qd, tau)
        return -dynamics.mass_matrix_inverse(model, q) @ regressor.joint_torque_regressor(model, q, qd, qdd)

    def inverse_sensitivity(model: Model, q: Any) -> Any:
        X = dynamics.mass_matrix_inverse(model, q)
        return -jnp.einsum("ia,abd,bj->ijd", X, sensitivity.mass_matrix_sensitivity(model, q), X)

    cases = {
        "inverse_dynamics": by_state(dynamics.inverse_dynamics, slopes.inverse_dynamics_derivatives, "qd", "qdd"),
        "forward_dynamics": by_state(dynamics.forward_dynamics, slopes.forward_dynamics_derivatives, "qd", "tau"),
        "inverse_dynamics, second order": _second_order(model),
        "mass_matrix": by_state(dynamics.mass_matrix, sensitivity.mass_matrix_sensitivity),
        "mass_matrix_inverse": by_state(dynamics.mass_matrix_inverse, inverse_sensitivity),
        "mass_matrix, quadratic form": lambda s: Case(
            lambda dq: s.x @ dynamics.mass_matrix(model, integrate(model, s.q, dq)) @ s.qdd,
            (jnp.zeros_like(s.qd),),
            lambda: sensitivity.mass_matrix_sensitivity_vp(model, s.q, s.x, s.qdd),
        ),
        "coriolis_matrix": lambda s: Case(
            lambda qd: dynamics.coriolis_matrix(model, s.q, qd),
            (s.qd,),
            lambda: jnp.swapaxes(sensitivity.christoffel_symbols(model, s.q), 1, 2),
        ),
        "frame_velocity": by_state(
            velocity_of_frame, lambda m, q, qd: frame_slopes.frame_velocity_derivatives(m, q, qd, frame), "qd"
        ),
        "frame_acceleration": by_state(
            acceleration_of_frame,
            lambda m, q, qd, qdd: frame_slopes.frame_acceleration_derivatives(m, q, qd, qdd, frame),
            "qd",
            "qdd",
        ),
        "centroidal_momentum": by_state(
            dynamics.centroidal_momentum, frame_slopes.centroidal_momentum_derivatives, "qd"
        ),
        "kinetic_energy": by_state(dynamics.kinetic_energy, frame_slopes.kinetic_energy_derivatives, "qd"),
        "potential_energy": by_state(dynamics.potential_energy, frame_slopes.potential_energy_derivatives),
        "joint forces, by inertia": by_inertia(
            dynamics.inverse_dynamics, regressor.joint_torque_regressor, "qd", "qdd"
        ),
        "accelerations, by inertia": by_inertia(dynamics.forward_dynamics, accelerations_by_inertia, "qd", "tau"),
        "kinetic energy, by inertia": by_inertia(dynamics.kinetic_energy, regressor.kinetic_energy_regressor, "qd"),
        "potential energy, by inertia": by_inertia(gravity_energy, regressor.potential_energy_regressor),
        "momentum, by inertia": by_inertia(momentum_about_origin, regressor.momentum_regressor, "qd"),
        "integrate": _integrate(model),
        "difference": _difference(model),
        "inertia, by log-Cholesky": lambda s: Case(
            lambda x: physical.from_log_cholesky(s.theta + x.reshape(s.theta.shape)),
            (jnp.zeros(s.theta.size, s.q.dtype),),
            lambda: _block_rows(physical.log_cholesky_jacobian(s.theta)),
        ),
    }
    if massless_joints_of(model):
        solved = ("forward_dynamics", "mass_matrix_inverse", "accelerations, by inertia")
        return {name: case for name, case in cases.items() if name not in solved}
    return cases if model.topology.mimic_names else cases | _diagonal_cases(model)


def _diagonal_cases(model: Model) -> dict[str, Callable[[State], Case]]:
    """Return what is checked of the diagonalised equations of motion: rates along a motion at t = 0."""
    from jaxdyn import diagonal
    from jaxdyn.diagonal import articulated

    bare = model.replace(gravity=jnp.zeros_like(model.gravity))
    start = lambda s: (jnp.zeros(1, s.q.dtype),)
    by_time = lambda x: x[..., None]

    def free(s: State, t: Any) -> Any:
        """Return the state after t of a motion without forces, up to second order in q."""
        qdd = dynamics.forward_dynamics(bare, s.q, s.qd, jnp.zeros_like(s.qd))
        return integrate(model, s.q, t[0] * s.qd), s.qd + t[0] * qdd

    def coriolis(s: State) -> Case:
        C = lambda: by_time(diagonal.coriolis(model, s.q, diagonal.to_nu(model, s.q, s.qd)))
        return Case(lambda t: -diagonal.to_nu(model, *free(s, t)), start(s), C)

    def coriolis_xi(s: State) -> Case:
        D = spatial_operators(model, s.q).D
        C = lambda: by_time(D.solve(diagonal.coriolis_xi(model, s.q, diagonal.to_xi(model, s.q, s.qd))))
        return Case(lambda t: -diagonal.to_xi(model, *free(s, t)), start(s), C)

    def work(s: State) -> Case:
        """Return the energy of a motion without forces in units of |nu| |C|, to which the time is added."""
        nu = jax.lax.stop_gradient(diagonal.to_nu(model, s.q, s.qd))
        C = diagonal.coriolis(model, s.q, nu)
        size = jax.lax.stop_gradient(jnp.linalg.norm(nu) * jnp.linalg.norm(C))
        scale = jnp.where(size > 0, size, 1)

        def energy(t: Any) -> Any:
            moved = diagonal.to_nu(model, *free(s, t))
            return (moved @ moved / 2 / scale + t[0])[None]

        return Case(energy, start(s), lambda: (1 - nu @ C / scale)[None, None])

    def rates(s: State) -> Case:
        def at(t: Any) -> Any:
            links = articulated.bodies(model.moving, integrate(model, s.q, t[0] * s.qd))
            found = articulated.articulated(model.parents, links)
            return jnp.concatenate([found.P.ravel(), found.tau_bar.ravel()])

        found = lambda: diagonal.rates(model, s.q, s.qd)
        return Case(at, start(s), lambda: by_time(jnp.concatenate([found().P.ravel(), found().tau_bar.ravel()])))

    def factor(s: State) -> Case:
        m = lambda dq: diagonal.innovations_factor_dense(model, integrate(model, s.q, dq))
        return Case(m, (jnp.zeros_like(s.qd),), lambda: diagonal.sensitivities(model, s.q).m)

    return {
        "diagonal.coriolis": coriolis,
        "diagonal.coriolis_xi": coriolis_xi,
        "diagonal.coriolis: no work": work,
        "diagonal.rates": rates,
        "diagonal factor m": factor,
    }


def _second_order(model: Model) -> Callable[[State], Case]:
    def case(s: State) -> Case:
        def gradient(dq: Any, qd: Any) -> Any:
            value = lambda dq, qd, qdd: s.x @ dynamics.inverse_dynamics(model, integrate(model, s.q, dq), qd, qdd)
            return jnp.stack(jax.grad(value, argnums=(0, 1, 2))(dq, qd, s.qdd))

        def analytic() -> Any:
            H = second_order.inverse_dynamics_second_derivatives(model, s.q, s.qd, s.qdd, s.x)
            nothing = jnp.zeros_like(H.q_q)
            return jnp.stack([H.q_q, H.q_qd.T, H.q_qdd.T]), jnp.stack([H.q_qd, H.qd_qd, nothing])

        return Case(gradient, (jnp.zeros_like(s.qd), s.qd), analytic)

    return case


def _integrate(model: Model) -> Callable[[State], Case]:
    def case(s: State) -> Case:
        end = jax.lax.stop_gradient(integrate(model, s.q, s.qd))
        arrived = lambda x, dq: difference(model, end, integrate(model, integrate(model, s.q, x), dq))
        return Case(arrived, (jnp.zeros_like(s.qd), s.qd), lambda: manifold.integrate_derivatives(model, s.q, s.qd))

    return case


def _difference(model: Model) -> Callable[[State], Case]:
    def case(s: State) -> Case:
        end, rest = integrate(model, s.q, s.qd), jnp.zeros_like(s.qd)
        between = lambda x, y: difference(model, integrate(model, s.q, x), integrate(model, end, y))
        return Case(between, (rest, rest), lambda: manifold.difference_derivatives(model, s.q, end))

    return case


def _block_rows(blocks: jax.Array) -> jax.Array:
    """Return blocks (n, 10, 10), each of which acts on its own ten numbers, as (n, 10, 10 n)."""
    n = len(blocks)
    return (blocks[:, :, None] * jnp.eye(n, dtype=blocks.dtype)[:, None, :, None]).reshape((n, 10, 10 * n))


def verify(
    model: Model,
    key: jax.Array,
    *,
    functions: Sequence[str] | None = None,
    samples: int = 3,
    progress: Callable[[Row], None] | None = None,
) -> Verification:
    """Check every derivative on a robot: analytic against forward and reverse mode and central differences.

    States, directions and weights are random: a wrong entry of any derivative shows. All is computed in float64.
    Most of the time goes into compiling, a program a function: a minute or two for an arm, more for a humanoid.

    Args:
        model: the model.
        key: a key of `jax.random`.
        functions: names of rows of the table; all, if not given.
        samples: number of states.
        progress: called with every row as soon as it is there.

    Returns:
        The largest relative differences, by function; `.ok` says whether all are small, `print` shows a table.
        Forward dynamics, the inverse of the mass matrix and the diagonalised equations of motion are left out if a
        joint moves no inertia, the latter also of models with mimic joints. A model that cannot move has no rows.

    Example:
        >>> import jax, jaxdyn
        >>> found = jaxdyn.derivatives.verify(jaxdyn.load("pendulum"), jax.random.key(0), functions=["mass_matrix"])
        >>> found.ok
        True
    """
    arguments.require_model(model)
    rows = []
    with jax.enable_x64(True):
        seed = np.asarray(jax.random.key_data(key)).ravel()
        model = model.astype(jnp.float64)
        cases = _chosen(_cases(model), functions)
        for row in _rows(model, cases, np.random.default_rng(seed), samples):
            rows.append(row)
            if progress is not None:
                progress(row)
    return Verification(tuple(rows))


def _chosen(cases: dict[str, Any], functions: Sequence[str] | None) -> dict[str, Any]:
    for name in functions or ():
        if name not in cases:
            raise ValueError(f"functions: no derivatives of {name!r} to verify here: {suggestion(name, cases)}")
    return cases if functions is None else {name: cases[name] for name in functions}


def _rows(model: Model, cases: dict[str, Any], rng: np.random.Generator, samples: int) -> Iterator[Row]:
    keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), samples)
    q = jax.vmap(random_configuration, (None, 0))(model, keys)
    qd, qdd, tau, x = jnp.asarray(rng.normal(size=(4, samples, model.nv)))
    states = State(q, qd, qdd, tau, x, jnp.asarray(0.3 * rng.normal(size=(samples, model.nbodies, 10))))
    seeds = jnp.asarray(rng.integers(2**31, size=samples))
    for name, make in cases.items():
        compared = jax.jit(jax.vmap(lambda s, seed: _compare(make(s), seed)), compiler_options=ONCE)
        yield Row(name, *(_relative(a, b) for a, b in compared(states, seeds)))


def _compare(case: Case, seed: jax.Array) -> list[tuple[Any, Any]]:
    """Return pairs to be equal: by forward mode, by reverse mode, by differences, each with the analytic one."""
    f, at, found = case.function, case.at, case.analytic()
    analytic = found if isinstance(found, tuple) else (found,)
    keys = jax.random.split(jax.random.key(seed), len(at) + 1)
    along = tuple(jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, at, strict=False))
    value, forward = jax.jvp(f, at, along)
    weights = jax.random.normal(keys[-1], value.shape, value.dtype)
    reverse = jax.vjp(f, *at)[1](weights)
    ahead, back = (f(*(x + h * v for x, v in zip(at, along, strict=True))) for h in (STEP, -STEP))
    change = sum(A @ v for A, v in zip(analytic, along, strict=True))
    pulled = tuple(jnp.tensordot(weights, A, weights.ndim) for A in analytic)
    return [(forward, change), (reverse, pulled), ((ahead - back) / (2 * STEP), change)]


def _relative(a: Any, b: Any) -> float:
    """Return max|a - b| / max|b| over all arrays; where b is zero, max|a|."""
    flat = lambda tree: np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])
    a, b = flat(a), flat(b)
    if not a.size:
        return 0.0
    size = np.abs(b).max()
    return float(np.abs(a - b).max() / (size if size > 0 else 1))
