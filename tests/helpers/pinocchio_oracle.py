"""Comparison of one robot with Pinocchio: names, masses, limits, poses."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from jaxdyn import ModelWarning
from jaxdyn.io import from_pinocchio, to_pinocchio


def both(path, floating_base):
    """Load a URDF here and in Pinocchio; None for the latter if it refuses the file."""
    import pinocchio

    root = [pinocchio.JointModelFreeFlyer()] if floating_base else []
    try:
        other = pinocchio.buildModelFromUrdf(str(path), *root)
    except ValueError:
        return None, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        return jaxdyn.load(path, floating_base=floating_base, mimic=False), other


def rows_in_our_order(model, other, q, Y):
    """Return a matrix of Pinocchio's with its rows, one per degree of freedom, in our order."""
    return np.stack([from_pinocchio(model, other, q, column)[1] for column in Y.T], axis=1)


def relative(a, b, floor=0.0):
    """max|a - b| / max|b|."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    scale = max(np.abs(b).max(initial=0), floor)
    return 0.0 if not b.size or scale == 0 else float(np.abs(a - b).max() / scale)


def note(worst, name, difference):
    """Keep the largest difference; NaN is larger than any."""
    worst[name] = float(np.maximum(worst.get(name, 0.0), difference))


def differences(model, other, samples=4):
    """Return the largest difference of each quantity from Pinocchio's."""
    import pinocchio

    joints = [other.getJointId(name) for name in model.joint_names]
    assert set(model.joint_names) == set(other.names) - {"universe"}
    worst = {}
    pi = np.array([other.inertias[j].toDynamicParameters() for j in joints]).reshape(-1, 10)
    note(worst, "mass", relative(model.inertia[:, 0], pi[:, 0]))
    note(worst, "first moment", relative(model.inertia[:, 1:4], pi[:, 1:4]))
    note(worst, "inertia", relative(model.inertia[:, 4:], pi[:, 4:]))
    for name, ours, theirs in (
        ("lower", model.lower, other.lowerPositionLimit),
        ("upper", model.upper, other.upperPositionLimit),
    ):
        for i, joint in enumerate(model.joint_names):
            if model.joint_types[i] in ("revolute", "prismatic"):
                (mine,) = ours[model.q_slice(joint)]
                note(worst, name, relative(mine, theirs[other.joints[joints[i]].idx_q], floor=1.0))
    for name, ours, theirs in (
        ("effort", model.effort_limit, getattr(other, "upperEffortLimit", None)),
        ("velocity", model.velocity_limit, getattr(other, "upperVelocityLimit", None)),
    ):
        for i, joint in enumerate(model.joint_names):
            mine = ours[model.qd_slice(joint)]
            if theirs is not None and len(mine) == 1 and np.isfinite(mine[0]):
                at = other.joints[joints[i]].idx_v
                note(worst, name, relative(mine[0], theirs[at], floor=1.0))

    keys = jax.random.split(jax.random.key(0), samples)
    q = jax.vmap(jaxdyn.random_configuration, in_axes=(None, 0))(model.replace(
        lower=jnp.full(model.nq, -jnp.inf), upper=jnp.full(model.nq, jnp.inf)), keys)  # fmt: skip
    names = (*model.body_names, *model.frame_names)
    double = _batch_of_poses(model, q)
    single = _batch_of_poses(model.astype(jnp.float32), q.astype(jnp.float32))
    data = other.createData()
    for s in range(samples):
        pinocchio.framesForwardKinematics(other, data, to_pinocchio(model, other, np.asarray(q[s])))
        placed = [data.oMf[other.getFrameId(name, pinocchio.FrameType.BODY)] for name in names]
        truth = np.array([[*x.rotation.ravel(), *x.translation] for x in placed]).reshape(-1, 12)
        for label, got in (("poses f64", double), ("poses f32", single)):
            note(worst, label, relative(got[s], truth, floor=1.0))
        if model.nbodies:
            com = pinocchio.centerOfMass(other, data, to_pinocchio(model, other, np.asarray(q[s])))
            if pi[:, 0].sum() > 0:
                note(worst, "com", relative(_com(model, double[s]), com, floor=1.0))
    return worst


def _all_poses(model, q):
    """(bodies and frames, 12): rotation, row by row, and position."""
    rows = [jnp.concatenate([p.rotation.reshape(-1, 9), p.position], axis=1)
            for p in (jaxdyn.forward_kinematics(model, q), jaxdyn.frame_poses(model, q))]  # fmt: skip
    return jnp.concatenate(rows)


_batch_of_poses = jax.jit(jax.vmap(_all_poses, in_axes=(None, 0)))


def _com(model, poses):
    rows, pi = np.asarray(poses)[: model.nbodies], np.asarray(model.inertia)
    moved = np.einsum("nij,nj->ni", rows[:, :9].reshape(-1, 3, 3), pi[:, 1:4])
    return (pi[:, :1] * rows[:, 9:] + moved).sum(0) / pi[:, 0].sum()


TOLERANCES = {"poses f64": 1e-12, "poses f32": 1e-5}
DEFAULT_TOLERANCE = 1e-12
