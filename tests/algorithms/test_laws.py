"""The fast algorithms against their plain twins, the laws of mechanics, and each other, on every joint type."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import quickly

import jaxdyn
from jaxdyn.model.random_models import random_tree


def relative(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return np.abs(a - b).max() / np.abs(b).max()


# Few bodies: compile time is what these tests cost. Between them they have every kind of column and walk.
MODELS = {
    "mixed forest": lambda: random_tree(
        5, seed=3, roots=2, floating_base=True, joints=("universal", "spherical", "prismatic", "mimic"),
        armature=True, passive=True,
    ),
    "branched, revolute": lambda: random_tree(
        6, seed=3, joints=("revolute",), floating_base=True, armature=True, passive=True
    ),
}  # fmt: skip


STATES = 4
STEP = 0.01
WEIGHTS = np.array([1 / 280, -4 / 105, 1 / 5, -4 / 5, 0, 4 / 5, -1 / 5, 4 / 105, -1 / 280]) / STEP
"""Of the rate of a smooth function at the middle of nine points, to the eighth order."""


class Case:
    """A model in motion, and everything that is compared, at all points by one program."""

    def __init__(self, model):
        rng = np.random.default_rng(1)
        self.model, n = model, model.nv
        q = jax.vmap(jaxdyn.random_configuration, in_axes=(None, 0))(model, jax.random.split(jax.random.key(5), STATES))
        qd, qdd, tau = rng.normal(size=(3, STATES, n))
        f, base = rng.normal(size=(STATES, model.nbodies, 6)), tuple(rng.normal(size=(2, STATES, 6)))
        time = STEP * np.arange(-4, 5)
        along = jax.jit(jax.vmap(lambda q, v: jax.vmap(lambda t: jaxdyn.integrate(model, q, t * v))(time)))
        path = along(q, qd), qd[:, None] + time[:, None] * qdd[:, None]
        frame, point = model.body_names[-1], jnp.array([0.1, 0.2, 0.3])
        slack = model.replace(stiffness=0 * model.stiffness)

        def all_of(q, qd, qdd, tau, f, base):
            extra = {"f_ext": f, "base_motion": base}
            return {
                "id": jaxdyn.inverse_dynamics(model, q, qd, qdd, **extra),
                "fd": jaxdyn.forward_dynamics(model, q, qd, tau, **extra),
                "M": jaxdyn.mass_matrix(model, q),
                "M inverse": jaxdyn.mass_matrix_inverse(model, q),
                "C": jaxdyn.coriolis_matrix(model, q, qd),
                "C tau": jaxdyn.coriolis_product(model, q, qd, tau),
                "bias": jaxdyn.bias_force(model, q, qd),
                "gravity": jaxdyn.gravity_force(model, q),
                "spring": jaxdyn.passive_force(model, q, jnp.zeros(model.nv)),
                "T": jaxdyn.kinetic_energy(model, q, qd),
                "U": jaxdyn.potential_energy(model, q),
                "U slack": jaxdyn.potential_energy(slack, q),
                "power": jaxdyn.power(model, q, qd, jaxdyn.inverse_dynamics(model, q, qd, qdd, f_ext=f), f_ext=f),
                "pose": jaxdyn.frame_pose(model, q, frame, point).position,
                "J": jaxdyn.jacobian(model, q, frame, point),
                "V": jaxdyn.frame_velocity(model, q, qd, frame, point),
                "A": jaxdyn.frame_acceleration(model, q, qd, qdd, frame, point),
                "J bias": jaxdyn.jacobian_bias(model, q, qd, frame, point),
                "v body": jaxdyn.body_velocities(model, q, qd),
                "a body": jaxdyn.body_accelerations(model, q, qd, qdd),
                "v world": jaxdyn.body_velocities(model, q, qd, axes="world"),
                "a world": jaxdyn.body_accelerations(model, q, qd, qdd, axes="world"),
                "h": jaxdyn.centroidal_momentum(model, q, qd),
                "A_G": jaxdyn.centroidal_momentum_matrix(model, q),
                "h bias": jaxdyn.centroidal_momentum_bias(model, q, qd),
                "com": jaxdyn.center_of_mass(model, q),
                "J com": jaxdyn.center_of_mass_jacobian(model, q),
            }

        # One batch of all points, which takes less time to trace than a batch of batches.
        flat = [np.asarray(x).reshape(-1, x.shape[-1]) for x in path]
        still = jax.tree.map(lambda x: np.repeat(x, time.size, axis=0), (qdd, tau, f, base))
        values = jax.jit(jax.vmap(all_of))(*flat, *still)
        values = {name: np.asarray(x).reshape(STATES, time.size, *x.shape[1:]) for name, x in values.items()}
        self.path, self.shared = path, (qdd, tau, f, base)
        self.rate = {name: np.einsum("t,bt...->b...", WEIGHTS, x) for name, x in values.items()}
        self.values = {name: x[:, 4] for name, x in values.items()}
        self.on_path = values
        self.q, self.qd, self.qdd, self.tau = q, qd, qdd, tau
        self.extra = {"f_ext": f[0], "base_motion": (base[0][0], base[1][0])}

    def __getitem__(self, name):
        return self.values[name]


@pytest.fixture(scope="module", params=["mixed forest", pytest.param("branched, revolute", marks=pytest.mark.long)])
def case(request):
    return Case(MODELS[request.param]())


def times(matrices, vectors):
    return np.einsum("bij,bj->bi", matrices, vectors)


def along(forces, velocities):
    return np.einsum("bi,bi->b", forces, velocities)


def test_the_fast_form_equals_its_plain_twin(case):
    model, q, qd, plain = case.model, case.q[0], case.qd[0], jaxdyn.plain
    assert relative(case["id"][0], plain.inverse_dynamics(model, q, qd, case.qdd[0], **case.extra)) < 1e-12
    assert relative(case["fd"][0], plain.forward_dynamics(model, q, qd, case.tau[0], **case.extra)) < 1e-11
    assert relative(case["M"][0], plain.mass_matrix(model, q)) < 1e-12


def test_one_state_by_matrices_equals_batches_by_sweeps(case):
    model, q, qd, extra = case.model, case.q[0], case.qd[0], case.extra | {"form": "dense"}
    assert relative(jaxdyn.inverse_dynamics(model, q, qd, case.qdd[0], **extra), case["id"][0]) < 1e-12
    assert relative(jaxdyn.forward_dynamics(model, q, qd, case.tau[0], **extra), case["fd"][0]) < 1e-11
    assert relative(jaxdyn.mass_matrix(model, q, form="dense"), case["M"][0]) < 1e-12


def test_a_batch_of_batches_equals_one_batch(case):
    """Of states along their paths; all points of a path share torques, forces and the motion of the base."""
    model = case.model

    def both(q, qd, qdd, tau, f, base):
        extra = {"f_ext": f, "base_motion": base}
        return {
            "id": jaxdyn.inverse_dynamics(model, q, qd, qdd, **extra),
            "fd": jaxdyn.forward_dynamics(model, q, qd, tau, **extra),
        }

    found = jax.jit(jax.vmap(jax.vmap(both, in_axes=(0, 0, None, None, None, None))))(*case.path, *case.shared)
    for name, x in found.items():
        assert relative(x, case.on_path[name]) < 1e-11


def test_the_mass_matrix_is_symmetric_positive_definite_and_gives_the_kinetic_energy(case):
    assert relative(case["M"], case["M"].transpose(0, 2, 1)) < 1e-14
    assert np.linalg.eigvalsh(case["M"]).min() > 0
    assert relative(0.5 * along(case.qd, times(case["M"], case.qd)), case["T"]) < 1e-13


def test_the_inverse_is_the_inverse(case):
    one = np.broadcast_to(np.eye(case.model.nv), case["M"].shape)
    assert relative(case["M"] @ case["M inverse"], one) < 1e-9


def test_the_coriolis_matrix_gives_the_bias_and_makes_mdot_minus_2c_skew(case):
    assert relative(times(case["C"], case.qd), case["bias"] - case["gravity"]) < 1e-11
    skew = case.rate["M"] - 2 * case["C"]
    assert np.abs(skew + skew.transpose(0, 2, 1)).max() < 1e-10 * np.abs(case["C"]).max()
    assert relative(case["C tau"], times(case["C"], case.tau)) < 1e-12


def test_gravity_and_springs_are_gradients_of_potential_energy(case):
    assert relative(along(case["gravity"], case.qd), case.rate["U slack"]) < 1e-10
    assert relative(along(case["spring"], case.qd), case.rate["U slack"] - case.rate["U"]) < 1e-10


def test_damping_and_friction_in_closed_form():
    """-d qd - f tanh(qd / v_s), and its slopes by qd, f and v_s: at rest, slowly, fast, and in both directions."""
    model = jaxdyn.load("double_pendulum")
    f, v_s, d, q = np.array([0.4, 0.7]), np.array([0.05, 0.3]), np.array([0.2, 0.0]), np.array([0.3, -0.5])

    @quickly
    def of_motion(qd):
        force = lambda qd, f, v_s: jaxdyn.passive_force(model.replace(damping=d, friction=f, v_s=v_s), q, qd)
        return force(qd, f, v_s), jax.jacrev(force, (0, 1, 2))(qd, f, v_s)

    for qd in np.array([[0.0, 0.0], [0.01, -0.02], [-3.0, 0.4]]):
        value, slopes = of_motion(qd)
        tanh, sech_squared = np.tanh(qd / v_s), 1 / np.cosh(qd / v_s) ** 2
        np.testing.assert_allclose(value, -d * qd - f * tanh, rtol=1e-14)
        wanted = -d - f * sech_squared / v_s, -tanh, f * sech_squared * qd / v_s**2
        for found, diagonal in zip(slopes, wanted, strict=True):
            np.testing.assert_allclose(found, np.diag(diagonal), rtol=1e-12, atol=1e-15)


def test_power_is_the_rate_of_energy(case):
    assert relative(case["power"], case.rate["T"] + case.rate["U slack"]) < 1e-10


def test_the_jacobian_and_frame_velocity_are_rates_of_the_pose(case):
    assert relative(times(case["J"], case.qd), case["V"]) < 1e-13
    assert relative(case["V"][:, 3:], case.rate["pose"]) < 1e-10


def test_accelerations_are_rates_of_velocities(case):
    assert relative(case["A"], case.rate["V"]) < 1e-10
    assert relative(times(case["J"], case.qdd) + case["J bias"], case["A"]) < 1e-12
    assert relative(case["a body"], case.rate["v body"]) < 1e-10
    assert relative(case["a world"], case.rate["v world"]) < 1e-10


def test_centroidal_momentum_is_linear_in_velocity_and_its_bias_belongs_to_its_rate(case):
    assert relative(times(case["A_G"], case.qd), case["h"]) < 1e-12
    assert relative(times(case["A_G"], case.qdd) + case["h bias"], case.rate["h"]) < 1e-10
    assert relative(times(case["J com"], case.qd), case.rate["com"]) < 1e-10
