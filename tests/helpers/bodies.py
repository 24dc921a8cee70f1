"""Bodies as ten inertial parameters, by NumPy: clouds of point masses, boxes, thin and tiny ones."""

import numpy as np
import pytest

from jaxdyn.model import pseudo_inertia

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
UPPER = np.array([0, 0, 1, 0, 1, 2]), np.array([0, 1, 1, 2, 2, 2])  # Ixx, Ixy, Iyy, Ixz, Iyz, Izz


def second_moments(x, w):
    """Return sum of w [x; 1] [x; 1]^T of points x (..., k, 3) of masses w (..., k)."""
    y = np.concatenate([x, np.ones_like(x[..., :1])], -1)
    return np.einsum("...k,...ki,...kj->...ij", w, y, y)


def parameters(m, c, I):
    """Return ten parameters from mass, centre of mass and inertia (3, 3) about it."""
    about_origin = I + m * (c @ c * np.eye(3) - np.outer(c, c))
    return np.array([m, *(m * c), *about_origin[UPPER]])


def point_masses(x, w):
    """Return ten parameters by the definition of inertia."""
    r2 = (x * x).sum(-1)[..., None, None]
    I = np.einsum("...k,...kij->...ij", w, r2 * np.eye(3) - x[..., :, None] * x[..., None, :])
    return np.concatenate([w.sum(-1, keepdims=True), np.einsum("...k,...ki->...i", w, x), I[..., *UPPER]], -1)


def cloud(seed, n, k=6):
    rng = np.random.default_rng(seed)
    size = 10.0 ** rng.uniform(-1.5, 0.5, (n, 1, 3))
    return size * rng.normal(size=(n, k, 3)) + rng.normal(size=(n, 1, 3)), rng.uniform(0.1, 2, (n, k))


def clouds(seed, n, k=6):
    return point_masses(*cloud(seed, n, k))


def box(m, sides, c=(0.0, 0.0, 0.0)):
    squares = np.square(sides)
    return parameters(m, np.array(c), np.diag(m / 12 * (squares.sum() - squares)))


def turned(R, pi):
    """Return parameters in other axes."""
    I = np.zeros((3, 3))
    I[UPPER] = I[UPPER[::-1]] = pi[4:]
    return np.array([pi[0], *(R @ pi[1:4]), *(R @ I @ R.T)[UPPER]])


def rotation(seed):
    Q = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))[0]
    return Q * np.linalg.det(Q)


# Bodies whose pseudo-inertia has equal or nearly vanishing eigenvalues.
BODIES = {
    "sphere": box(2.0, (0.3, 0.3, 0.3), (0.11, 0.23, -0.17)),
    "all eigenvalues equal": box(1.0, np.sqrt([12.0, 12.0, 12.0])),
    "rod": turned(rotation(1), box(1.0, (1.0, 1e-2, 1e-2))),
    "plate": turned(rotation(2), box(1.0, (1.0, 1.0, 1e-2))),
    "1 mg": box(1e-6, (2e-3, 1e-3, 3e-3), (1e-3, 0, 2e-3)),
    "far away": box(1.0, (0.3, 0.2, 0.1), (1.0, -2.0, 1.5)),
}


def random_theta(seed, n):
    return np.random.default_rng(seed).normal(size=(n, 10))


def eigenvalues(pi):
    return np.linalg.eigvalsh(np.asarray(pseudo_inertia(np.asarray(pi, np.float64))))
