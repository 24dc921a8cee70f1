"""Never NaN: at awkward points every public function has a value, a gradient and a Hessian, and they are right."""

import inspect
from functools import lru_cache, partial
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.pinocchio_oracle import both
from helpers.states import in_single, long, quickly, random_state, relative

import jaxdyn
from jaxdyn import derivatives
from jaxdyn.derivatives import lagrangian
from jaxdyn.model.random_models import random_chain
from jaxdyn.spatial import Quaternion

# ---------------------------------------------------------------------- all public functions
MODULES = {
    "": jaxdyn, "derivatives.": derivatives, "lagrangian.": lagrangian, "plain.": jaxdyn.plain,
    "operators.": jaxdyn.operators, "estimation.": jaxdyn.estimation, "parallel.": jaxdyn.parallel,
    "diagonal.": jaxdyn.diagonal, "control.": jaxdyn.control,
}  # fmt: skip
NOT_OF_A_STATE = {
    "load", "save", "neutral", "random_configuration", "lock_joints", "subtree", "add_rotors", "inertial_parameters",
    "with_inertial_parameters", "verify", "spatial_operators", "innovations_factor", "sample", "block_diagonal",
    "step", "step_xi", "is_globally_diagonalizable", "flat_coordinates", "pose_feedback", "pose_error",
    "rate_feedback", "coriolis_closed_form", "coriolis_xi_closed_form", "adapt", "axis_goal", "orientation_goal",
    "pose_goal", "position_goal", "posture_goal", "inverse_kinematics", "lqr", "lqr_infinite", "equilibrium_lqr",
    "trajectory_lqr", "follow", "desired_motion", "stateful_rollout", "selection_matrices",
}  # fmt: skip


# Without a limit at singular poses: tests/operators/test_operational.py says what they do there.
SINGULAR = {
    "operational_space_inertia", "operational_space_dynamics", "jacobian_normal_inverse", "manipulability",
    "operational_space_control", "hybrid_control",
}  # fmt: skip


def public():
    """Return all public functions of a state, by name."""
    found = {}
    for prefix, module in MODULES.items():
        for name, value in vars(module).items():
            if name.startswith("_") or isinstance(value, (type, ModuleType)) or not callable(value):
                continue
            own = prefix in ("", "derivatives.") or inspect.unwrap(value).__module__.startswith(module.__name__)
            if own and name not in NOT_OF_A_STATE | SINGULAR:
                found[prefix + name] = value
    return found


FUNCTIONS = public()


FIRST, SECOND = ("qd", "dq", "v", "y", "a", "xi"), ("qdd", "w", "x", "b", "nu", "eps")
GAINS = {"stiffness": 2.0, "damping": 0.5, "convergence": 1.5, "gain": 0.7, "adaptation": 0.3}
GIVEN = {"model", "q", "q0", "q1", "q_des", "tau", "frame", "target", "estimate", "f", "force", "f_ext"}
GIVEN |= {*FIRST, *SECOND, *GAINS}


def needed(name):
    """Return the parameters of a function that must be given."""
    return [p for p in inspect.signature(FUNCTIONS[name]).parameters.values() if p.default is p.empty]


def call(name, model, s):
    """Return a function's results; it is given what the names of its parameters ask for."""
    q, other, qd, qdd, tau = (s[key] for key in ("q", "other", "qd", "qdd", "tau"))
    way = lambda q: jaxdyn.difference(model, other, q) @ (1.0 + jnp.arange(model.nv, dtype=q.dtype))
    given = {"model": model, "q": q, "q0": other, "q1": q, "tau": tau, "frame": model.frame_names[-1], "f": way}
    given["force"] = jnp.arange(6, dtype=q.dtype)
    given["f_ext"] = jnp.tile(given["force"], (model.nbodies, 1))
    given |= dict.fromkeys(FIRST, qd) | dict.fromkeys(SECOND, qdd) | GAINS | {"q_des": other}
    if any(p.name == "target" for p in needed(name)):
        given["target"] = jaxdyn.frame_pose(model, other, given["frame"])
    if any(p.name == "estimate" for p in needed(name)):
        given["estimate"] = 1.5 * jaxdyn.inertial_parameters(model)
    by_place = [given[p.name] for p in needed(name) if p.kind is not p.KEYWORD_ONLY]
    by_name = {p.name: given[p.name] for p in needed(name) if p.kind is p.KEYWORD_ONLY}
    return jax.tree.leaves(FUNCTIONS[name](*by_place, **by_name))


# ---------------------------------------------------------------------- awkward points
MILLIGRAM = 1e-6


@lru_cache
def arm():
    """Return an arm without armature: a link without mass in the middle, a ball joint, a tip of a milligram."""
    builder = jaxdyn.ModelBuilder("awkward")
    spring = {"friction": 0.2, "v_s": 0.5, "stiffness": 2.0, "damping": 0.1}
    heavy = {"com": (0.05, -0.1, 0.2), "inertia": (0.01, 0.02, 0.015)} | spring
    light = {"mass": MILLIGRAM, "com": (0, 0, 0.2), "inertia": (MILLIGRAM / 100,) * 3}
    builder.add_body("upper", axis=(0, 1, 0), mass=1.0, **heavy)
    builder.add_body("shell", "upper", xyz=(0, 0, 0.5), axis=(0, 1, 0), **spring)
    builder.add_body("ball", "shell", "spherical", xyz=(0, 0, 0.4), mass=0.5, **heavy)
    builder.add_body("tip", "ball", xyz=(0, 0, 0.3), axis=(0, 1, 0), **light)
    return builder.add_frame("tool", "tip", xyz=(0, 0, 0.1)).build()


HALF, AXIS = np.array([0, 0.6, 0, 0.8]), np.array([0.6, 0, 0.8])  # half a turn, and its axis


def balls(model):
    """Return where each quaternion is in q, and its rotation in qd."""
    joints = zip(model.joint_names, model.joint_types, strict=True)
    names = [name for name, kind in joints if kind in ("spherical", "free")]
    return [(model.q_slice(name).start, model.qd_slice(name).start) for name in names]


def awkward(model):
    """Return awkward points by name. Armature is zero at all but one."""
    normal = np.random.default_rng(5).normal
    zero, unit = np.zeros(model.nv), np.ones(model.nv)
    if model is arm():
        unit[-1] = MILLIGRAM / 20  # the force that moves the tip

    def at(angle, quaternion, **changes):
        q = np.full(model.nq, float(angle))
        for k, _ in balls(model):
            q[k : k + 4] = quaternion
        moving = dict(zip(("qd", "qdd", "tau"), normal(size=(3, model.nv)), strict=True))
        fixed = {"other": np.asarray(jaxdyn.neutral(model)), "gravity": np.asarray(model.gravity), "armature": zero}
        return {"q": q, "unit": unit} | moving | fixed | changes

    identity, somewhere, still = (1, 0, 0, 0), (0.5, -0.4, 0.2, 0.6), {"qd": zero, "qdd": zero, "tau": zero}
    found = {
        "at rest at zero": at(0, identity, **still),
        "moving through zero": at(0, identity),
        "at rest at half a turn": at(np.pi, HALF, **still),
        "moving through half a turn": at(np.pi, HALF),
        "antipodal": at(-np.pi, (-1, 0, 0, 0)),
        "straight": at(0, identity),
        "folded": at(np.pi, identity),
        "weightless": at(0.7, somewhere, gravity=np.zeros(3)),
        "with armature": at(0.7, somewhere, armature=zero + 0.1),
        "a turn in unit time": at(0.7, somewhere),
    }
    first = min(set(range(model.nq)) - {i for k, _ in balls(model) for i in range(k, k + 4)})
    for name in ("straight", "folded"):
        found[name]["q"][first] = 0.7
    for _, k in balls(model):
        found["a turn in unit time"]["qd"][k : k + 3] = 2 * np.pi * AXIS
    return found


def directions(model, names):
    """Return ways to leave the points; from half a turn to where the angle of the quaternion is less."""
    normal = np.random.default_rng(6).normal
    sizes = {"dq": model.nv, "raw": model.nq, "dother": model.nv, "qd": model.nv, "qdd": model.nv, "tau": model.nv}
    found = {key: normal(size=(len(names), size)) for key, size in sizes.items()}
    half = [row for row, name in enumerate(names) if "half" in name]
    for k, v in balls(model):
        found["raw"][half, k], found["dq"][half, v : v + 3], found["dother"][half, v : v + 3] = 1.0, -AXIS, AXIS
    return found


def moved(model, at, x):
    """Return model and state near a point: q moves along `integrate`, and by its coordinates."""
    state = {"qd": at["qd"] + x["qd"], "qdd": at["qdd"] + x["qdd"], "tau": at["unit"] * (at["tau"] + x["tau"])}
    state["q"] = jaxdyn.integrate(model, at["q"], x["dq"]) + x["raw"]
    state["other"] = jaxdyn.integrate(model, at["other"], x["dother"])
    return model.replace(gravity=at["gravity"], armature=at["armature"]), state


# ---------------------------------------------------------------------- values, gradients, Hessians
STEP = 1e-4
LEAST = {"float64": 1e-6, "float32": 1e-2}  # of the largest number of an array: what is less may be rounding


@lru_cache(maxsize=2)
def program(names, order):
    """Return a program for the values of functions, and the gradient and a product of the Hessian of their sum.

    Each function is a sum of its results with random weights, each in units of its own size.
    """

    def values(model, at, x, least):
        each = jax.vmap(lambda at, x: [call(name, *moved(model, at, x)) for name in names])(at, x)
        return jnp.stack([sum(weighted(y, seed, least) for seed, y in enumerate(ys)) for ys in each])

    def weighted(y, seed, least):
        y = y.reshape(len(y), -1)
        size = jax.lax.stop_gradient(jnp.nanmax(jnp.abs(y), axis=0))
        size = jnp.maximum(size, least * size.max())
        weights = np.random.default_rng(seed).normal(size=y.shape[1]).astype(y.dtype)
        return y @ (weights / jnp.where(size > 0, size, 1))

    def gradient(model, at, least, x):
        total = lambda x: (lambda y: (y.sum(), y))(values(model, at, x, least))
        by_x, y = jax.grad(total, has_aux=True)(x)  # the points do not know of each other
        return y, jnp.concatenate(list(by_x.values()), axis=1)

    def everything(model, at, x, d, least):
        if order == 1:
            return gradient(model, at, least, x)
        (y, g), (_, Hd) = jax.jvp(partial(gradient, model, at, least), (x,), (d,))
        return y, g, Hd

    return quickly(everything)


def visit(names, order, model, dtype="float64"):
    """Return values (functions, 3, points), gradients (3, points, ...) and Hessians times d: at points, near them."""
    at = awkward(model)
    d = directions(model, list(at))
    thrice = lambda x: np.concatenate([np.asarray(x)] * 3)
    d, at = jax.tree.map(thrice, d), {key: thrice([s[key] for s in at.values()]) for key in next(iter(at.values()))}
    steps = np.repeat([0, STEP, 2 * STEP], len(at["q"]) // 3)[:, None]
    args = model, at, {key: steps * x for key, x in d.items()}, d, LEAST["float64" if dtype == "float64" else "float32"]
    args = args if dtype == "float64" else in_single(args)
    args = args if dtype == "float32" else jax.tree.map(lambda x: np.asarray(x, np.float64), args)
    y, *rest = program(names, order)(*args)
    split = lambda x: x.reshape(3, -1, x.shape[-1])
    return [y.reshape(len(names), 3, -1), *map(split, rest)], split(np.concatenate(list(d.values()), axis=1))[0]


def worst(model, found, wanted):
    """Return the largest error in units of the largest number, and where it is; infinite if one is not a number."""
    scale = np.abs(wanted).max()
    errors = np.abs(found - wanted).reshape(len(awkward(model)), -1).max(1) / (scale if scale > 0 else 1)
    errors = np.where(np.isfinite(errors), errors, np.inf)
    return errors.max(), [name for name, e in zip(awkward(model), errors, strict=True) if e > 0.5 * errors.max()]


def errors_at(names, order, model):
    """Return how far values, gradients and Hessians are from their limits and from differences of the next lower."""
    (y, *rest), d = visit(names, order, model)
    limit = lambda x: 2 * x[1] - x[2]
    slope = lambda x: (4 * x[1] - x[2] - 3 * x[0]) / (2 * STEP)
    found = {f"value of {name}": worst(model, y[k][0], limit(y[k])) for k, name in enumerate(names)}
    found |= {f"limit of derivative {k + 1}": worst(model, x[0], limit(x)) for k, x in enumerate(rest)}
    found["gradient"] = worst(model, (rest[0][0] * d).sum(-1), slope(y.sum(0)))
    if order == 2:
        found["Hessian"] = worst(model, rest[1][0], slope(rest[0]))
    return found


def assert_right(names, order, model=None, most=1e-5):
    """Fail with the names of the functions that are wrong, of those that were worked out together."""
    model = arm() if model is None else model
    wrong = {what: x for what, x in errors_at(names, order, model).items() if not x[0] < most}
    if wrong and len(names) > 1:
        for name in names:
            assert_right((name,), order, model, most)
    assert not wrong, (names, wrong)


IMPORTANT = (
    "forward_dynamics", "inverse_dynamics", "mass_matrix", "forward_kinematics", "difference", "integrate",
    "frame_velocity",
)  # fmt: skip
CURVED = ("inverse_dynamics", "forward_kinematics", "difference", "integrate")


def test_every_public_function_is_visited():
    """What is imported into `jaxdyn` and its packages has arguments we know of, or is no function of a state."""
    wanted = {"inverse_dynamics", "derivatives.tangent_hessian", "lagrangian.bracket", "plain.mass_matrix"}
    assert wanted | {"operators.forward_dynamics", "estimation.smooth", "parallel.forward_dynamics"} <= set(FUNCTIONS)
    assert {name for module in MODULES.values() for name in vars(module)} >= NOT_OF_A_STATE
    unknown = {name: {p.name for p in needed(name)} - GIVEN for name in FUNCTIONS}
    assert not any(unknown.values()), unknown


@pytest.mark.parametrize(
    ("names", "order"), [(IMPORTANT, 1), (CURVED, 2), *(long((name,), 2, id=name) for name in FUNCTIONS)]
)
def test_right_at_awkward_points(names, order):
    """Each equals its limit, gradients the slopes of values, Hessians those of gradients."""
    assert_right(names, order)


@pytest.mark.parametrize(
    ("names", "order"), [(IMPORTANT[:2], 1), long(IMPORTANT, 1), *(long((name,), 2, id=name) for name in FUNCTIONS)]
)
def test_right_in_single_precision(names, order):
    """Equal to what double precision makes of the same numbers."""
    rough, truth = (visit(names, order, arm(), dtype)[0] for dtype in ("float32", "rounded"))
    at_points = lambda found: [*found[0][:, 0], *(x[0] for x in found[1:])]
    for what, a, b in zip((*names, "gradient", "Hessian"), at_points(rough), at_points(truth), strict=False):
        assert a.dtype == np.float32
        assert worst(arm(), a, b)[0] < 1e-4, (what, worst(arm(), a, b))


# ---------------------------------------------------------------------- half a turn
@pytest.mark.parametrize("dtype", ["float64", long("float32")])
def test_difference_at_half_a_turn_is_a_one_sided_limit(dtype):
    """Of angles from above, of rotation vectors from within: value, gradient, Hessian. The other side is 2 pi off."""
    model = random_chain(3, seed=1, joints=("free", "continuous", "planar")).astype(dtype)
    d, weights = np.abs(np.random.default_rng(1).normal(size=(2, model.nq))).astype(dtype)
    q = np.concatenate([HALF, np.full(model.nq - 4, np.pi)]).astype(dtype)
    way = lambda q: jaxdyn.difference(model, jaxdyn.neutral(model), q)
    gradient = jax.grad(lambda q: way(q) @ weights[: model.nv])
    found = quickly(jax.vmap(lambda t: (way(q + t * d), *jax.jvp(gradient, (q + t * d,), (d,)))))
    step, rounding = (1e-5, 0) if dtype == "float64" else (1e-3, 1e-5)
    results = found(jnp.asarray([0, step, 2 * step, -step], dtype))
    for y in results:
        assert y.dtype == dtype
        assert relative(2 * y[1] - y[2], y[0]) < 100 * step**2 + rounding
    value, other_side = results[0][0], results[0][3]
    np.testing.assert_allclose(value[:3], np.pi * AXIS, rtol=1e-6)
    np.testing.assert_allclose(other_side[:3], -np.pi * AXIS, atol=20 * step)
    for name in ("continuous", "planar"):
        v = model.qd_slice(model.joint_names[model.joint_types.index(name)])
        angle = v.start + np.argmin(np.abs(value[v] + np.pi))
        np.testing.assert_allclose(value[angle], -np.pi, rtol=1e-6)
        np.testing.assert_allclose(other_side[angle], np.pi, atol=20 * step)
    np.testing.assert_allclose(Quaternion(*HALF).log().to_array(), np.pi * AXIS, rtol=1e-15)


# ---------------------------------------------------------------------- neighbours of a NaN
def of_states(names, order, s):
    """Return of one state the results, and the gradient of their squares."""
    results = lambda s: [call(name, arm(), s) for name in names]
    squares = lambda s: (lambda ys: (sum((y * y).sum() for y in jax.tree.leaves(ys)), ys))(results(s))
    return results(s) if order == 0 else jax.value_and_grad(squares, has_aux=True)(s)


ISOLATED = ("mass_matrix", "mass_matrix_inverse", "derivatives.inverse_dynamics_derivatives")


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (("forward_dynamics", "inverse_dynamics"), 1),
        (ISOLATED, 0),
        long(("mass_matrix", "mass_matrix_inverse"), 1),
        *(long((name,), 0, id=name) for name in FUNCTIONS if name.startswith("derivatives.")),
    ],
)
def test_a_nan_does_not_reach_its_neighbours(names, order):
    """Not in a batch that is cut into tiles and filled up with copies of its last state."""
    model, count = arm(), 1027
    state = random_state(model) | {"other": np.ones(model.nq)}
    rng = np.random.default_rng(2)
    good = {key: rng.normal(size=(count, *state[key].shape)) for key in ("q", "other", "qd", "qdd", "tau")}
    bad, spoilt = {key: x.copy() for key, x in good.items()}, [0, 333, 334, 700, count - 1]
    bad["q"][[0, 700, -1], 2] = bad["qd"][333] = bad["tau"][334] = np.nan
    run = quickly(jax.vmap(partial(of_states, names, order)))
    found, wanted = (jax.tree.leaves(run(states)) for states in (bad, good))
    assert any(np.isnan(a[0]).any() and np.isnan(a[-1]).any() for a in found)
    for a, b in zip(found, wanted, strict=True):
        assert np.all(np.isfinite(b))
        np.testing.assert_array_equal(np.delete(a, spoilt, axis=0), np.delete(b, spoilt, axis=0))


# ---------------------------------------------------------------------- real robots
@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "floating_base"),
    [("panda_description/urdf/panda.urdf", False), ("anymal_b_simple_description/robots/anymal.urdf", True)],
)
def test_real_robots(robot_data, path, floating_base):
    pytest.importorskip("pinocchio")
    assert_right(("forward_dynamics",), 1, both(robot_data / path, floating_base)[0])
