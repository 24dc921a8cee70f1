"""The fast algorithms against their plain twins, the laws of mechanics, and each other, on every joint type."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.model.random_models import random_tree


def relative(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return np.abs(a - b).max() / np.abs(b).max()


# Few bodies: compile time is what these tests cost. Between them they have every kind of column and walk.
MODELS = {
    "mixed forest": lambda: random_tree(
        6, seed=2, roots=2, floating_base=True, joints=("universal", "spherical", "prismatic", "mimic"),
        armature=True, passive=True,
    ),
    "branched, revolute": lambda: random_tree(
        6, seed=3, joints=("revolute",), floating_base=True, armature=True, passive=True
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=MODELS, ids=list(MODELS))
def case(request):
    """A model, a batch of states, and everything that is compared, computed by one program."""
    model = MODELS[request.param]()
    keys = jax.random.split(jax.random.key(5), 3)
    q = jax.vmap(jaxdyn.random_configuration, in_axes=(None, 0))(model, keys)
    qd, qdd, tau = np.random.default_rng(1).normal(size=(3, 3, model.nv))
    f = np.random.default_rng(2).normal(size=(3, model.nbodies, 6))
    base = tuple(np.random.default_rng(3).normal(size=(2, 3, 6)))
    frame, point = model.body_names[-1], jnp.array([0.1, 0.2, 0.3])
    slack = model.replace(stiffness=0 * model.stiffness)

    def all_of(model, q, qd, qdd, tau, f, base):
        extra = {"f_ext": f, "base_motion": base}
        along = lambda t: jaxdyn.integrate(model, q, t * qd)
        rate = lambda g: jax.jvp(g, (0.0,), (1.0,))[1]
        tangent = lambda g: jax.grad(lambda e: g(jaxdyn.integrate(model, q, e)))(jnp.zeros(model.nv))
        return {
            "id": jaxdyn.inverse_dynamics(model, q, qd, qdd, **extra),
            "fd": jaxdyn.forward_dynamics(model, q, qd, tau, **extra),
            "M": jaxdyn.mass_matrix(model, q),
            "M inverse": jaxdyn.mass_matrix_inverse(model, q),
            "M rate": rate(lambda t: jaxdyn.mass_matrix(model, along(t))),
            "C": jaxdyn.coriolis_matrix(model, q, qd),
            "C tau": jaxdyn.coriolis_product(model, q, qd, tau),
            "bias": jaxdyn.bias_force(model, q, qd),
            "gravity": jaxdyn.gravity_force(model, q),
            "dV": tangent(lambda q: jaxdyn.potential_energy(slack, q)),
            "T": jaxdyn.kinetic_energy(model, q, qd),
            "spring": jaxdyn.passive_force(model, q, jnp.zeros(model.nv)),
            "dV spring": tangent(lambda q: jaxdyn.potential_energy(model, q) - jaxdyn.potential_energy(slack, q)),
            "power": jaxdyn.power(model, q, qd, jaxdyn.inverse_dynamics(model, q, qd, qdd, f_ext=f), f_ext=f),
            "dE": rate(
                lambda t: (
                    jaxdyn.kinetic_energy(slack, along(t), qd + t * qdd) + jaxdyn.potential_energy(slack, along(t))
                )
            ),
            "J": jaxdyn.jacobian(model, q, frame, point),
            "V": jaxdyn.frame_velocity(model, q, qd, frame, point),
            "dp": rate(lambda t: jaxdyn.frame_pose(model, along(t), frame, point).position),
            "A": jaxdyn.frame_acceleration(model, q, qd, qdd, frame, point),
            "dV frame": rate(lambda t: jaxdyn.frame_velocity(model, along(t), qd + t * qdd, frame, point)),
            "J bias": jaxdyn.jacobian_bias(model, q, qd, frame, point),
            "a body": jaxdyn.body_accelerations(model, q, qd, qdd),
            "dv body": rate(lambda t: jaxdyn.body_velocities(model, along(t), qd + t * qdd)),
            "a world": jaxdyn.body_accelerations(model, q, qd, qdd, axes="world"),
            "dv world": rate(lambda t: jaxdyn.body_velocities(model, along(t), qd + t * qdd, axes="world")),
            "h": jaxdyn.centroidal_momentum(model, q, qd),
            "A_G": jaxdyn.centroidal_momentum_matrix(model, q),
            "h bias": jaxdyn.centroidal_momentum_bias(model, q, qd),
            "dh": rate(lambda t: jaxdyn.centroidal_momentum(model, along(t), qd)),
            "com rate": rate(lambda t: jaxdyn.center_of_mass(model, along(t))),
            "J com": jaxdyn.center_of_mass_jacobian(model, q),
        }

    values = jax.jit(jax.vmap(all_of, in_axes=(None, 0, 0, 0, 0, 0, 0)))(model, q, qd, qdd, tau, f, base)
    return model, (q, qd, qdd, tau, f, base), jax.tree.map(np.asarray, values)


def test_the_fast_form_equals_its_plain_twin(case):
    model, (q, qd, qdd, tau, f, base), values = case
    extra = {"f_ext": f[0], "base_motion": (base[0][0], base[1][0])}
    assert relative(values["id"][0], jaxdyn.plain.inverse_dynamics(model, q[0], qd[0], qdd[0], **extra)) < 1e-12
    assert relative(values["fd"][0], jaxdyn.plain.forward_dynamics(model, q[0], qd[0], tau[0], **extra)) < 1e-11
    assert relative(values["M"][0], jaxdyn.plain.mass_matrix(model, q[0])) < 1e-12


def test_one_state_by_matrices_equals_batches_by_sweeps(case):
    model, (q, qd, qdd, tau, f, base), values = case
    extra = {"f_ext": f[0], "base_motion": (base[0][0], base[1][0]), "form": "dense"}
    assert relative(jaxdyn.inverse_dynamics(model, q[0], qd[0], qdd[0], **extra), values["id"][0]) < 1e-12
    assert relative(jaxdyn.forward_dynamics(model, q[0], qd[0], tau[0], **extra), values["fd"][0]) < 1e-11
    assert relative(jaxdyn.mass_matrix(model, q[0], form="dense"), values["M"][0]) < 1e-12


def test_the_mass_matrix_is_symmetric_positive_definite_and_gives_the_kinetic_energy(case):
    _, (_, qd, *_), values = case
    assert relative(values["M"], values["M"].transpose(0, 2, 1)) < 1e-14
    assert np.linalg.eigvalsh(values["M"]).min() > 0
    assert relative(0.5 * np.einsum("bi,bij,bj->b", qd, values["M"], qd), values["T"]) < 1e-13


def test_the_inverse_is_the_inverse(case):
    model, _, values = case
    assert relative(values["M"] @ values["M inverse"], np.broadcast_to(np.eye(model.nv), values["M"].shape)) < 1e-9


def test_the_coriolis_matrix_gives_the_bias_and_makes_mdot_minus_2c_skew(case):
    _, (_, qd, _, tau, *_), values = case
    assert relative(np.einsum("bij,bj->bi", values["C"], qd), values["bias"] - values["gravity"]) < 1e-11
    skew = values["M rate"] - 2 * values["C"]
    assert np.abs(skew + skew.transpose(0, 2, 1)).max() < 1e-12 * np.abs(values["M rate"]).max()
    assert relative(values["C tau"], np.einsum("bij,bj->bi", values["C"], tau)) < 1e-12


def test_gravity_and_springs_are_gradients_of_potential_energy(case):
    assert relative(case[2]["gravity"], case[2]["dV"]) < 1e-12
    assert relative(case[2]["spring"], -case[2]["dV spring"]) < 1e-12


def test_power_is_the_rate_of_energy(case):
    assert relative(case[2]["power"], case[2]["dE"]) < 1e-12


def test_the_jacobian_and_frame_velocity_are_rates_of_the_pose(case):
    _, (_, qd, *_), values = case
    assert relative(np.einsum("bij,bj->bi", values["J"], qd), values["V"]) < 1e-13
    assert relative(values["V"][:, 3:], values["dp"]) < 1e-12


def test_accelerations_are_rates_of_velocities(case):
    _, (_, _, qdd, *_), values = case
    assert relative(values["A"], values["dV frame"]) < 1e-12
    assert relative(np.einsum("bij,bj->bi", values["J"], qdd) + values["J bias"], values["A"]) < 1e-12
    assert relative(values["a body"], values["dv body"]) < 1e-12
    assert relative(values["a world"], values["dv world"]) < 1e-12


def test_centroidal_momentum_is_linear_in_velocity_and_its_bias_is_its_rate(case):
    _, (_, qd, *_), values = case
    assert relative(np.einsum("bij,bj->bi", values["A_G"], qd), values["h"]) < 1e-12
    assert relative(values["h bias"], values["dh"]) < 1e-12
    assert relative(np.einsum("bij,bj->bi", values["J com"], qd), values["com rate"]) < 1e-12
