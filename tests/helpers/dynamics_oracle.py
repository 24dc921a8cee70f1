"""Dynamics of many robots against Pinocchio's, with one compilation.

Compiling all functions takes the better part of a minute, whatever the number of bodies. Robots are therefore
compared side by side in one world (a forest): nothing couples them, which is checked too. In a forest bodies,
joints and frames have numbers for names, so that robots of the same structure share compiled code.
"""

import dataclasses
import itertools
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from helpers.pinocchio_oracle import both, note, relative

import jaxdyn
from jaxdyn import Model
from jaxdyn.io import to_pinocchio
from jaxdyn.model.topology import Topology

SAMPLES = 4
GRAVITY = np.array([0.7, -1.1, -9.6])
TOLERANCES = {"float64": 1e-10, "float32": 1e-3}
ARMATURE = 1e-3
"""For robots with joints that move no inertia."""

LINEAR_FIRST = [3, 4, 5, 0, 1, 2]
ALONE = ("kinetic_energy", "potential_energy", "center_of_mass", "center_of_mass_jacobian", "centroidal_momentum",
         "centroidal_momentum_matrix", "centroidal_momentum_bias")  # fmt: skip
"""Quantities that are sums over the whole world: computed once for each robot, with the others weightless."""
DENSE = ("inverse_dynamics, dense", "forward_dynamics, dense", "mass_matrix, dense")
"""The forms for one state."""
FRAMES = ("jacobian", "jacobian_bias", "frame_velocity", "frame_acceleration")


class State(NamedTuple):
    """Samples of a state and of what acts on it, (samples, ...), representable in single precision."""

    q: np.ndarray
    qd: np.ndarray
    qdd: np.ndarray
    tau: np.ndarray
    f_ext: np.ndarray
    """(samples, nbodies, 6)"""


class Robot(NamedTuple):
    """A robot, where it is looked at, and another library's answers (samples, ...) in our conventions."""

    label: str
    model: Model
    state: State
    frames: tuple[str, ...]
    """A body or frame name for each place where Jacobians and the like are compared."""
    points: np.ndarray
    """(places, 3), in those frames."""
    truth: dict[str, Any]
    """By name of the function; (samples, places, ...) for those of frames."""


# ---------------------------------------------------------------------- our side
def forest(models) -> Model:
    """Put models side by side into the first one's world, under numbers instead of names."""
    starts = np.concatenate([[0], np.cumsum([m.nbodies for m in models])])
    shifted = lambda field: tuple(
        int(i) if i < 0 else int(i + start)
        for m, start in zip(models, starts[:-1], strict=True) for i in getattr(m.topology, field)
    )  # fmt: skip
    numbered = lambda kind, n: tuple(f"{kind}{i}" for i in range(n))
    frame_parents = shifted("frame_parents")
    topology = Topology(
        name="forest",
        parents=shifted("parents"),
        joints=tuple(itertools.chain(*(m.topology.joints for m in models))),
        body_names=numbered("body", starts[-1]),
        joint_names=numbered("joint", starts[-1]),
        followed=shifted("followed"),
        frame_names=numbered("frame", len(frame_parents)),
        frame_parents=frame_parents,
    )
    leaves = [f.name for f in dataclasses.fields(Model) if f.name not in ("topology", "geometry", "gravity")]
    joined = {name: jnp.concatenate([getattr(m, name) for m in models]) for name in leaves}
    return Model(**joined, gravity=models[0].gravity, topology=topology)


@partial(jax.jit, static_argnames="names")
def _of_states(model, state, names):
    """Return functions of all robots at once, (samples, ...)."""

    def one(q, qd, qdd, tau, f_ext):
        functions = {
            "inverse_dynamics": lambda: jaxdyn.inverse_dynamics(model, q, qd, qdd, f_ext=f_ext),
            "forward_dynamics": lambda: jaxdyn.forward_dynamics(model, q, qd, tau, f_ext=f_ext),
            "mass_matrix": lambda: jaxdyn.mass_matrix(model, q),
            "inverse_dynamics, dense": lambda: jaxdyn.inverse_dynamics(model, q, qd, qdd, f_ext=f_ext, form="dense"),
            "forward_dynamics, dense": lambda: jaxdyn.forward_dynamics(model, q, qd, tau, f_ext=f_ext, form="dense"),
            "mass_matrix, dense": lambda: jaxdyn.mass_matrix(model, q, form="dense"),
            "mass_matrix_inverse": lambda: jaxdyn.mass_matrix_inverse(model, q),
            "bias_force": lambda: jaxdyn.bias_force(model, q, qd),
            "gravity_force": lambda: jaxdyn.gravity_force(model, q),
            "passive_force": lambda: jaxdyn.passive_force(model, q, qd),
            "coriolis_matrix": lambda: jaxdyn.coriolis_matrix(model, q, qd),
            "body_velocities": lambda: jaxdyn.body_velocities(model, q, qd),
            "body_velocities, world": lambda: jaxdyn.body_velocities(model, q, qd, axes="world"),
            "body_accelerations": lambda: jaxdyn.body_accelerations(model, q, qd, qdd),
            "body_accelerations, world": lambda: jaxdyn.body_accelerations(model, q, qd, qdd, axes="world"),
        }
        return {name: functions[name]() for name in names if name in functions}

    return jax.vmap(one)(*state)


@partial(jax.jit, static_argnames="names")
def _of_each_alone(model, q, qd, has_mass, has_armature, names):
    """Return functions of each robot while the others weigh nothing, (robots, samples, ...)."""

    def one(q, qd, bodies, dofs):
        alone = model.replace(inertia=model.inertia * bodies[:, None], armature=model.armature * dofs,
                              stiffness=model.stiffness * dofs)  # fmt: skip
        functions = {
            "kinetic_energy": lambda: jaxdyn.kinetic_energy(alone, q, qd),
            "potential_energy": lambda: jaxdyn.potential_energy(alone, q),
            "center_of_mass": lambda: jaxdyn.center_of_mass(alone, q),
            "center_of_mass_jacobian": lambda: jaxdyn.center_of_mass_jacobian(alone, q),
            "centroidal_momentum": lambda: jaxdyn.centroidal_momentum(alone, q, qd),
            "centroidal_momentum_matrix": lambda: jaxdyn.centroidal_momentum_matrix(alone, q),
            "centroidal_momentum_bias": lambda: jaxdyn.centroidal_momentum_bias(alone, q, qd),
        }
        return {name: functions[name]() for name in names if name in functions}

    return jax.vmap(jax.vmap(one, in_axes=(0, 0, None, None)), in_axes=(None, None, 0, 0))(
        q, qd, has_mass, has_armature
    )


def _of_frame(model, state, frame, point, names):
    """Return functions of a point of a frame, (samples, ...); another frame does not compile anew."""
    q, qd, qdd = state[:3]
    functions = {
        "jacobian": lambda: jax.vmap(lambda q: jaxdyn.jacobian(model, q, frame, point))(q),
        "jacobian_bias": lambda: jax.vmap(lambda q, v: jaxdyn.jacobian_bias(model, q, v, frame, point))(q, qd),
        "frame_velocity": lambda: jax.vmap(lambda q, v: jaxdyn.frame_velocity(model, q, v, frame, point))(q, qd),
        "frame_acceleration": lambda: jax.vmap(
            lambda q, v, a: jaxdyn.frame_acceleration(model, q, v, a, frame, point))(q, qd, qdd),
    }  # fmt: skip
    return {name: functions[name]() for name in names if name in functions}


def differences(robots, dtype="float64", names=None):
    """Return the largest difference of each function from the truth, {robot's label: {function: difference}}.

    Differences are relative to the largest number of the robot's own result. A pair of robots that influence
    each other, or a Jacobian's column of another robot that is not zero, is a difference of NaN.
    """
    models = [robot.model for robot in robots]
    whole = forest(models).astype(dtype)
    names = tuple(sorted({name for robot in robots for name in robot.truth} if names is None else names))
    state = State(
        *(jnp.asarray(np.concatenate(x, axis=1), dtype) for x in zip(*(r.state for r in robots), strict=True))
    )
    counts = {
        "body": [m.nbodies for m in models],
        "dof": [m.nv for m in models],
        "frame": [len(m.frame_names) for m in models],
    }
    at = {kind: np.concatenate([[0], np.cumsum(n)]) for kind, n in counts.items()}
    masks = [jnp.asarray(np.repeat(np.eye(len(robots)), counts[kind], axis=1), dtype) for kind in ("body", "dof")]
    of_states = jax.device_get(_of_states(whole, state, names))
    if "coriolis_matrix" in of_states:
        of_states["coriolis_matrix @ qd"] = np.einsum("sij,sj->si", of_states["coriolis_matrix"], state.qd)
    of_each = jax.device_get(_of_each_alone(whole, state.q, state.qd, *masks, names)) if set(names) & set(ALONE) else {}
    worst = {}
    for k, robot in enumerate(robots):
        found = worst.setdefault(robot.label, {})
        bodies, dofs = (slice(at[kind][k], at[kind][k + 1]) for kind in ("body", "dof"))
        for name, value in of_states.items():
            if name.startswith("body"):
                value = value[:, bodies]
            elif value.ndim == 3:
                value = _own(value[:, dofs], dofs, 2)
            else:
                value = value[:, dofs]
            _compare(found, name, value, robot.truth, dtype)
        for name, value in of_each.items():
            value = value[k]
            if name in ("center_of_mass_jacobian", "centroidal_momentum_matrix"):
                value = _own(value, dofs, 2)
            _compare(found, name, value, robot.truth, dtype)
        places = []
        for frame, point in zip(robot.frames, robot.points, strict=True):
            body, number = robot.model.topology.find_frame(frame)
            numbered = f"body{at['body'][k] + body}" if number < 0 else f"frame{at['frame'][k] + number}"
            places.append(_of_frame(whole, state, numbered, jnp.asarray(point, dtype), names))
        for name in places[0] if places else ():
            value = np.stack([np.asarray(place[name]) for place in places], axis=1)
            _compare(found, name, _own(value, dofs, 3) if name == "jacobian" else value, robot.truth, dtype)
    return worst


def assert_small(worst, tolerance, names, title="") -> dict[str, float]:
    """Print the largest difference of each function over all robots, and demand that each is small; return them."""
    overall: dict[str, float] = {}
    for found in worst.values():
        for name, difference in found.items():
            note(overall, name, difference)
    print(f"\n{title}{len(worst)} models, largest differences:")
    for name, difference in sorted(overall.items()):
        print(f"  {name:30} {difference:.1e}  {max(worst, key=lambda label: worst[label].get(name, 0.0))}")
    assert set(overall) == set(names)
    bad = {label: {n: d for n, d in found.items() if not d <= tolerance} for label, found in worst.items()}
    assert not any(bad.values()), {label: found for label, found in bad.items() if found}
    return overall


def _own(value, dofs, axis):
    """Return a robot's own entries along an axis; NaN if those of others are not zero."""
    others = np.delete(value, np.r_[dofs], axis=axis)
    own = np.take(value, np.r_[dofs], axis=axis)
    return own if not others.any() else np.full_like(own, np.nan)


def _compare(found, name, ours, truth, dtype):
    """Note the difference; numbers below 1e-15 are zeros.

    Where a system is solved and M is so ill-conditioned that rounding alone, times its condition, is a
    thousand times what is asked, the forces that the result takes are compared instead, to the same tolerance.
    """
    name_of_truth = name.removesuffix(", dense")
    theirs = truth[name_of_truth]
    assert np.shape(ours) == np.shape(theirs), (name, np.shape(ours), np.shape(theirs))
    if name_of_truth not in ("forward_dynamics", "mass_matrix_inverse"):
        note(found, name, relative(ours, theirs) if np.abs(theirs).max() > 1e-15 else np.abs(ours).max(initial=0.0))
        return
    hopeless = 1000 * TOLERANCES[dtype] / np.finfo(dtype).eps
    for a, b, M in zip(ours, theirs, truth["mass_matrix"], strict=True):
        forces = np.abs(M @ (a - b)).max() / (np.abs(M).max() * np.abs(b).max())
        note(found, name, forces if np.linalg.cond(M) > hopeless else relative(a, b))


# ---------------------------------------------------------------------- Pinocchio's side
def pinocchio_robot(path, floating_base, seed=0, armature=0.0) -> Robot | None:
    """Load a robot on both sides and ask Pinocchio; None if it refuses the file or nothing moves."""
    model, other = both(path, floating_base)
    if other is None or not model.nv:
        return None
    other.gravity.linear = GRAVITY
    model = one_frame(model.replace(gravity=GRAVITY))
    state, rng = random_state(model, seed), np.random.default_rng(seed)
    hinges = np.repeat(
        [joint.nv == 1 for joint in model.topology.joints], [joint.nv for joint in model.topology.joints]
    )
    if _is_singular(model, other, state):
        armature = armature or ARMATURE
    model = model.replace(armature=np.where(hinges, armature * rng.uniform(0.5, 2, model.nv), 0.0))
    other.armature[_order(model, other)] = np.asarray(model.armature)
    frames = (deepest_body(model), *(model.frame_names or model.body_names[:1]))
    points = np.array([np.zeros(3), rng.normal(size=3).astype(np.float32)])
    label = f"{path.stem} {'floating' if floating_base else 'fixed'}"
    return Robot(label, model, state, frames, points, _pinocchio_truth(model, other, state, frames, points))


def random_state(model, seed) -> State:
    """Draw samples, without regard to limits and to the length of quaternions."""
    rng = np.random.default_rng(seed)
    shapes = (model.nq, model.nv, model.nv, model.nv, (model.nbodies, 6))
    return State(*(rng.normal(size=(SAMPLES, *np.atleast_1d(n))).astype(np.float32).astype(np.float64) for n in shapes))


def deepest_body(model) -> str:
    depth = {-1: 0}
    for i, parent in enumerate(model.parents):
        depth[i] = depth[parent] + 1
    return model.body_names[max(range(model.nbodies), key=depth.get)]


def one_frame(model) -> Model:
    """Keep of all frames the moving one that is farthest from its body's origin."""
    t, distance = model.topology, np.linalg.norm(np.asarray(model.frame_placement)[:, 4:], axis=1)
    moving = [i for i, parent in enumerate(t.frame_parents) if parent >= 0]
    kept = [max(moving, key=lambda i: (distance[i], i))] if moving else []
    topology = dataclasses.replace(
        t, frame_names=tuple(t.frame_names[i] for i in kept), frame_parents=tuple(t.frame_parents[i] for i in kept)
    )
    return dataclasses.replace(model, topology=topology, frame_placement=model.frame_placement[np.array(kept, int)])


def _order(model, other):
    """Return for each of our degrees of freedom its place in Pinocchio's velocity."""
    _, v = to_pinocchio(model, other, np.asarray(jaxdyn.neutral(model)), np.arange(model.nv))
    return np.argsort(v)


def _is_singular(model, other, state) -> bool:
    """Tell whether a joint moves no inertia worth the name."""
    import pinocchio as pin

    M = np.array(pin.crba(other, other.createData(), to_pinocchio(model, other, state.q[0])))
    M = np.triu(M) + np.triu(M, 1).T
    return bool(np.diag(M).min() <= 0 or np.linalg.cond(M) > 1e10)


def _pinocchio_truth(model, other, state, frames, points):
    import pinocchio as pin

    order, joints = _order(model, other), [other.getJointId(name) for name in model.joint_names]
    places = []
    for frame, point in zip(frames, points, strict=True):
        carrier = other.frames[other.getFrameId(frame, pin.FrameType.BODY)]
        placement = carrier.placement * pin.SE3(np.eye(3), point)
        places.append(
            other.addFrame(pin.Frame(f"{frame} at {point}", carrier.parentJoint, placement, pin.FrameType.OP_FRAME))
        )
    data, aligned = other.createData(), pin.ReferenceFrame.LOCAL_WORLD_ALIGNED
    ours = lambda x: np.concatenate([x.angular, x.linear])
    truth = {}

    def keep(name, value):
        truth.setdefault(name, []).append(np.array(value))

    for s in range(SAMPLES):
        (q, v), (_, a), (_, tau) = (to_pinocchio(model, other, state.q[s], x[s]) for x in state[1:4])
        f = pin.StdVec_Force()
        f.extend([pin.Force.Zero() for _ in range(other.njoints)])
        for j, (*moment, x, y, z) in zip(joints, state.f_ext[s], strict=True):
            f[j] = pin.Force(np.array([x, y, z]), np.array(moment))
        both_ways = np.ix_(order, order)
        keep("inverse_dynamics", pin.rnea(other, data, q, v, a, f)[order])
        keep("forward_dynamics", pin.aba(other, data, q, v, tau, f)[order])
        M = pin.crba(other, data, q)
        keep("mass_matrix", (np.triu(M) + np.triu(M, 1).T)[both_ways])
        # Not computeMinverse, which loses up to seven digits on these robots.
        keep("mass_matrix_inverse", np.linalg.inv(truth["mass_matrix"][-1]))
        bias, gravity = pin.nonLinearEffects(other, data, q, v), pin.computeGeneralizedGravity(other, data, q)
        keep("bias_force", bias[order])
        keep("gravity_force", gravity[order])
        keep("coriolis_matrix", pin.computeCoriolisMatrix(other, data, q, v)[both_ways])
        keep("coriolis_matrix @ qd", (bias - gravity)[order])
        # Not computeKineticEnergy, which leaves out the armature of some robots.
        keep("kinetic_energy", state.qd[s] @ truth["mass_matrix"][-1] @ state.qd[s] / 2)
        keep("potential_energy", pin.computePotentialEnergy(other, data, q))
        keep("center_of_mass", pin.centerOfMass(other, data, q))
        keep("center_of_mass_jacobian", pin.jacobianCenterOfMass(other, data, q)[:, order])
        pin.ccrba(other, data, q, v)
        keep("centroidal_momentum", ours(data.hg))
        keep("centroidal_momentum_matrix", data.Ag[LINEAR_FIRST][:, order])
        pin.dccrba(other, data, q, v)
        keep("centroidal_momentum_bias", (data.dAg @ v)[LINEAR_FIRST])
        pin.computeJointJacobians(other, data, q)
        pin.forwardKinematics(other, data, q, v, a)
        pin.updateFramePlacements(other, data)
        keep("jacobian", [pin.getFrameJacobian(other, data, i, aligned)[LINEAR_FIRST][:, order] for i in places])
        keep("frame_velocity", [ours(pin.getFrameVelocity(other, data, i, aligned)) for i in places])
        keep("frame_acceleration", [ours(pin.getFrameClassicalAcceleration(other, data, i, aligned)) for i in places])
        keep("body_velocities", [ours(data.v[j]) for j in joints])
        keep("body_velocities, world", [ours(pin.getVelocity(other, data, j, aligned)) for j in joints])
        keep("body_accelerations", [ours(data.a[j]) for j in joints])
        keep("body_accelerations, world", [ours(pin.getClassicalAcceleration(other, data, j, aligned)) for j in joints])
        pin.forwardKinematics(other, data, q, v, 0 * a)
        keep("jacobian_bias", [ours(pin.getFrameClassicalAcceleration(other, data, i, aligned)) for i in places])
    return {name: np.array(values) for name, values in truth.items()}
