"""Forward dynamics of revolute trees in many digits: what float64 is judged by.

Featherstone's articulated-body algorithm in body coordinates, with dense 6x6 matrices of mpmath numbers. It
shares no code with jaxdyn, and starts from the very numbers that a model's leaves hold.
"""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np

import jaxdyn

DIGITS = 50

_exact = np.vectorize(lambda x: mpmath.mpf(float(x)), otypes=[object])
_sqrt = np.vectorize(mpmath.sqrt, otypes=[object])


def forward_dynamics(model: jaxdyn.Model, q: np.ndarray, qd: np.ndarray, tau: np.ndarray) -> np.ndarray:
    """Return the accelerations of a model with revolute joints only, rounded to float64.

    Args:
        model: the model; its leaves are taken as they are, in whatever precision.
        q: angles, (nbodies,); as are the next.
        qd: velocities.
        tau: torques.
    """
    if set(model.joint_types) != {"revolute"}:
        raise ValueError(f"revolute joints only; got {sorted(set(model.joint_types))}")
    with mpmath.workdps(DIGITS):
        return _articulated_body(model, *(_exact(np.asarray(x)) for x in (q, qd, tau)))


def _articulated_body(model: jaxdyn.Model, q: np.ndarray, qd: np.ndarray, tau: np.ndarray) -> np.ndarray:
    parents, n = model.parents, model.nbodies
    placement, axis, inertia, gravity, armature = (
        _exact(np.asarray(x)) for x in (model.placement, model.axis, model.inertia, model.gravity, model.armature)
    )
    zero = _exact(np.zeros(6))
    X, S, V, c, I, p = ([None] * n for _ in range(6))  # X takes motions from the parent to the body
    for i, parent in enumerate(parents):
        s = axis[i] / _sqrt(axis[i] @ axis[i])
        X[i] = _motion_transform(_rotation(placement[i, :4]) @ _turn(s, q[i]), placement[i, 4:])
        S[i] = np.concatenate([s, zero[:3]])
        V[i] = (X[i] @ V[parent] if parent >= 0 else zero) + S[i] * qd[i]
        c[i] = _cross(V[i]) @ S[i] * qd[i]
        I[i] = _spatial_inertia(inertia[i])
        p[i] = -_cross(V[i]).T @ (I[i] @ V[i])
    U, D, u = ([None] * n for _ in range(3))
    for i in reversed(range(n)):
        U[i] = I[i] @ S[i]
        D[i] = S[i] @ U[i] + armature[i]
        u[i] = tau[i] - S[i] @ p[i]
        if parents[i] >= 0:
            articulated = I[i] - np.outer(U[i], U[i]) / D[i]
            force = p[i] + articulated @ c[i] + U[i] * (u[i] / D[i])
            I[parents[i]] = I[parents[i]] + X[i].T @ articulated @ X[i]
            p[parents[i]] = p[parents[i]] + X[i].T @ force
    a, qdd = [None] * n, [None] * n
    base = np.concatenate([zero[:3], -gravity])
    for i, parent in enumerate(parents):
        a[i] = X[i] @ (a[parent] if parent >= 0 else base) + c[i]
        qdd[i] = (u[i] - U[i] @ a[i]) / D[i]
        a[i] = a[i] + S[i] * qdd[i]
    return np.array([float(x) for x in qdd])


def _skew(v: Any) -> np.ndarray:
    x, y, z = v
    o = mpmath.mpf(0)
    return np.array([[o, -z, y], [z, o, -x], [-y, x, o]], dtype=object)


def _cross(V: np.ndarray) -> np.ndarray:
    """Return V x as a matrix."""
    w, v = _skew(V[:3]), _skew(V[3:])
    return np.block([[w, 0 * w], [v, w]])


def _rotation(quaternion: np.ndarray) -> np.ndarray:
    w, *v = quaternion / _sqrt(quaternion @ quaternion)
    return _exact(np.eye(3)) + 2 * w * _skew(v) + 2 * _skew(v) @ _skew(v)


def _turn(axis: np.ndarray, angle: Any) -> np.ndarray:
    k = _skew(axis)
    return _exact(np.eye(3)) + mpmath.sin(angle) * k + (1 - mpmath.cos(angle)) * k @ k


def _motion_transform(R: np.ndarray, xyz: np.ndarray) -> np.ndarray:
    """Return the matrix that takes motions in the parent's frame to a frame turned by R and moved by xyz."""
    return np.block([[R.T, 0 * R], [-R.T @ _skew(xyz), R.T]])


def _spatial_inertia(parameters: np.ndarray) -> np.ndarray:
    m, hx, hy, hz, xx, xy, yy, xz, yz, zz = parameters
    h = _skew((hx, hy, hz))
    J = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]], dtype=object)
    return np.block([[J, h], [-h, m * _exact(np.eye(3))]])
