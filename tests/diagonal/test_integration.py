"""Integration in diagonalising coordinates: energy, order, reversibility, derivatives; Algorithm 8.1."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import long, quickly, random_state, relative
from jax.extend.core import jaxprs_in_params

import jaxdyn
from jaxdyn import diagonal
from jaxdyn.model.random_models import random_chain, random_tree

ROBOTS = {
    "chain": lambda: random_chain(2, seed=2, armature=True),
    "longer chain": lambda: random_chain(3, seed=1, armature=True),
    "floating base": lambda: random_tree(1, seed=1, floating_base=True),
    "spherical joint on a floating base": lambda: random_tree(2, seed=3, joints=("spherical",), floating_base=True),
}


class Run:
    """A robot and its compiled motions."""

    def __init__(self, model):
        self.model, s = model, random_state(model)
        self.q = jaxdyn.integrate(model, jnp.asarray(s["q"]), jnp.zeros(model.nv))  # quaternions of length one
        self.qd, self.tau = jnp.asarray(s["qd"]), 0.3 * jnp.asarray(s["tau"])
        self.nu = diagonal.to_nu(model, self.q, self.qd)
        self._steps, self._reference = quickly(self._run), quickly(self._rk4)

    def _run(self, gravity, q, nu, tau, dt, count):
        model = self.model.replace(gravity=gravity)
        step = lambda _, x: tuple(diagonal.step(model, *x, tau=tau, dt=dt))
        return jax.lax.fori_loop(0, count, step, (q, nu))

    def steps(self, q, nu, dt, count, gravity=0.0, tau=0.0):
        return self._steps(jnp.array([0, 0, -gravity]), q, nu, tau * self.tau, dt, count)

    def _rk4(self, gravity, tau, q, qd, dt, count):
        """Munthe-Kaas, whose correction of the fourth order is done by small steps instead."""
        model = self.model.replace(gravity=gravity)
        zero, parts = jnp.zeros((2, model.nv)), jnp.array([[0, 1 / 6], [0.5, 1 / 3], [0.5, 1 / 3], [1, 1 / 6]])
        moved = lambda q, v, k: (jaxdyn.integrate(model, q, k[0]), v + k[1])

        def step(_, x):
            def stage(total, part):
                k, change = total
                at, v = moved(*x, part[0] * k)
                k = dt * jnp.stack([v, jaxdyn.forward_dynamics(model, at, v, tau, form="dense")])
                return (k, change + part[1] * k), None

            return moved(*x, jax.lax.scan(stage, (zero, zero), parts)[0][1])

        return jax.lax.fori_loop(0, count, step, (q, qd))

    def reference(self, dt, count, gravity=0.0, tau=0.0):
        return self._reference(jnp.array([0, 0, -gravity]), tau * self.tau, self.q, self.qd, dt, count)


@cache
def run_of(name):
    return Run(ROBOTS[name]())


@pytest.fixture(scope="module", params=[name if name == "chain" else long(name) for name in ROBOTS])
def run(request):
    return run_of(request.param)


@pytest.mark.parametrize("count", [1000, long(100_000)])
def test_free_motion_keeps_its_energy_where_rk4_drifts(run, count):
    dt = 0.1
    _, nu = run.steps(run.q, run.nu, dt, count)
    assert abs(nu @ nu / (run.nu @ run.nu) - 1) < 1e-12
    energy = jaxdyn.kinetic_energy(run.model, *run.reference(dt, count))
    assert abs(2 * energy / (run.nu @ run.nu) - 1) > 1e-8


def test_a_floating_base_keeps_its_energy():
    """A quaternion, and a joint of several columns."""
    run = run_of("floating base")
    _, nu = run.steps(run.q, run.nu, 0.1, 1000)
    assert relative(nu, run.nu) > 0.1  # it has turned
    assert abs(nu @ nu / (run.nu @ run.nu) - 1) < 1e-12


def test_a_step_back_leads_back(run):
    q, nu = run.steps(run.q, run.nu, 0.002, 1000, gravity=9.81)
    assert relative(nu, run.nu) > 0.1  # it has moved
    q, nu = run.steps(q, nu, -0.002, 1000, gravity=9.81)
    assert np.abs(jaxdyn.difference(run.model, run.q, jnp.asarray(q))).max() < 1e-12
    assert relative(nu, run.nu) < 1e-12


def test_the_step_is_of_second_order(run):
    q, qd = run.reference(1 / 2000, 1000, gravity=9.81, tau=1.0)
    nu = diagonal.to_nu(run.model, q, qd)
    errors = []
    for n in (40, 80):
        found_q, found_nu = run.steps(run.q, run.nu, 0.5 / n, n, gravity=9.81, tau=1.0)
        errors.append((np.abs(jaxdyn.difference(run.model, q, found_q)).max(), relative(found_nu, nu)))
    order = np.log2(np.array(errors[0]) / errors[1])
    assert np.all((order > 1.9) & (order < 2.1))


def test_the_work_of_forces_is_the_change_of_energy(run):
    """With v the velocity in the middle, T' - T = h v . (tau - g)."""
    model, h = run.model, 0.05
    q, nu = run.steps(run.q, run.nu, h, 1, gravity=9.81, tau=1.0)
    v = jaxdyn.difference(model, run.q, jnp.asarray(q)) / h
    middle = jaxdyn.integrate(model, run.q, h / 2 * v)
    work = h * v @ (run.tau - jaxdyn.gravity_force(model, middle))
    assert abs((nu @ nu - run.nu @ run.nu) / 2 - work) < 1e-12 * abs(work)


@pytest.fixture(scope="module")
def chain():
    return run_of("chain")


class Slopes:
    """A number that depends on all that a step leads to, and its compiled gradient."""

    def __init__(self, run):
        self.run, self.x = run, jnp.asarray(np.random.default_rng(0).normal(size=2))
        self.at, self.along = (run.q, run.nu, run.tau, 0.1), (self.x, -self.x, self.x[::-1], 0.3)
        self.gradient = quickly(jax.value_and_grad(self.value, argnums=(0, 1, 2, 3), has_aux=True))

    def value(self, q, nu, tau, dt, gravity):
        after = diagonal.step(self.run.model.replace(gravity=gravity), q, nu, tau=tau, dt=dt)
        return self.x @ after.nu + self.x @ after.q, after

    def on_line(self, t):
        return [a + t * b for a, b in zip(self.at, self.along, strict=True)]

    def along_line(self, slopes):
        return sum(np.sum(a * b) for a, b in zip(slopes, self.along, strict=True))


@pytest.fixture(scope="module")
def slopes(chain):
    return Slopes(chain)


def test_derivatives_of_a_step_are_those_of_its_equation(slopes):
    """Against central differences."""
    gravity, h = slopes.run.model.gravity, 1e-5
    _, found = slopes.gradient(*slopes.at, gravity)
    (ahead, _), _ = slopes.gradient(*slopes.on_line(h), gravity)
    (behind, _), _ = slopes.gradient(*slopes.on_line(-h), gravity)
    difference = (ahead - behind) / (2 * h)
    assert abs(slopes.along_line(found) - difference) < 1e-7 * abs(difference)


@pytest.mark.long
def test_forward_mode_equals_reverse_mode(slopes):
    gravity = slopes.run.model.gravity
    value = lambda *at: slopes.value(*at, gravity)[0]
    forward = quickly(lambda *at: jax.jvp(value, at, slopes.along)[1])(*slopes.at)
    _, found = slopes.gradient(*slopes.at, gravity)
    assert abs(slopes.along_line(found) - forward) < 1e-10 * abs(forward)


def test_forces_may_depend_on_the_state(chain):
    model = chain.model
    damped = lambda q, qd: -0.5 * qd
    pushed = lambda q, qd: jnp.ones((model.nbodies, 6)) * jnp.sin(q).sum()

    @quickly
    def one(q, nu):
        after = diagonal.step(model, q, nu, tau=damped, f_ext=pushed, dt=0.1)
        v = (after.q - q) / 0.1
        held = diagonal.step(model, q, nu, tau=damped(q, v), f_ext=pushed(q + 0.05 * v, v), dt=0.1)
        return after, held

    after, held = one(chain.q, chain.nu)
    assert relative(after.nu, held.nu) < 1e-12


def test_at_rest_nothing_moves_and_gradients_are_finite(slopes):
    rest = jnp.zeros(2)
    (_, after), found = slopes.gradient(rest, rest, rest, 0.1, jnp.zeros(3))
    np.testing.assert_array_equal(np.concatenate(after), 0)
    assert all(np.isfinite(g).all() for g in found)


def test_bad_arguments_are_named(chain):
    with pytest.raises(ValueError, match="eps"):
        diagonal.step(chain.model, chain.q, chain.nu, jnp.zeros(3), dt=0.1)
    with pytest.raises(ValueError, match="tau"):
        diagonal.step(chain.model, chain.q, chain.nu, tau=jnp.zeros(3), dt=0.1)
    with pytest.raises(ValueError, match="f_ext"):
        diagonal.step(chain.model, chain.q, chain.nu, f_ext=jnp.zeros(6), dt=0.1)
    with pytest.raises(ValueError, match="dt"):
        diagonal.step(chain.model, chain.q, chain.nu, dt=jnp.zeros(2))


def test_algorithm_8_1_converges_to_the_motion(chain):
    """At first order, from above: half the step, half the error."""
    model, tau = chain.model, chain.tau

    @quickly
    def steps(dt, count):
        start = chain.q, diagonal.to_xi(model, chain.q, chain.qd), chain.qd
        return jax.lax.fori_loop(0, count, lambda _, x: tuple(diagonal.step_xi(model, *x, tau, dt=dt)), start)

    q, qd = chain.reference(1 / 2000, 1000, gravity=9.81, tau=1.0)
    errors = []
    for n in (200, 400):
        found_q, xi, found_qd = steps(0.5 / n, n)
        errors.append([np.abs(found_q - q).max(), np.abs(found_qd - qd).max()])
        assert relative(xi, diagonal.to_xi(model, found_q, found_qd)) < 0.02
    order = np.log2(np.array(errors[0]) / errors[1])
    assert np.all((order > 0.85) & (order < 1.15))


def _scans(f, *args):
    """Count the sweeps of a program."""

    def count(jaxpr):
        inner = [x for eqn in jaxpr.eqns for x in jaxprs_in_params(eqn.params)]
        return sum(eqn.primitive.name == "scan" for eqn in jaxpr.eqns) + sum(map(count, inner))

    return count(jax.make_jaxpr(jax.vmap(f))(*(x[None] for x in args)).jaxpr)


def test_algorithm_8_1_takes_as_many_sweeps_as_forward_dynamics(chain):
    """Poses and velocities outward, the filter and all forces of motion inward, velocities outward."""
    model, args = chain.model, (chain.q, chain.qd, chain.tau)
    xi = diagonal.to_xi(model, chain.q, chain.qd)
    ordinary = _scans(lambda q, qd, tau: jaxdyn.forward_dynamics(model, q, qd, tau, form="sweep"), *args)
    assert _scans(lambda q, qd, tau: diagonal.step_xi(model, q, xi, qd, tau, dt=0.1).xi, *args) == ordinary == 3
