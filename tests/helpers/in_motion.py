"""The letters of 002 for a robot in motion, as NumPy matrices: operators, their derivatives by JAX, and motions."""

from types import SimpleNamespace

import numpy as np


def cross(X):
    """Return X x of a spatial vector, (6, 6) (002 (5.5))."""
    w, v = (np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) for x, y, z in (X[:3], X[3:]))
    return np.block([[w, np.zeros((3, 3))], [v, w]])


def diagonal(blocks):
    """Return blocks (n, 6, 6) as one matrix."""
    n = len(blocks)
    X = np.zeros((n, 6, n, 6))
    X[np.arange(n), :, np.arange(n)] = blocks
    return X.reshape((6 * n, 6 * n))


def of_vector(X):
    """Return X x, body by body, of a vector of body space."""
    return diagonal([cross(x) for x in X.reshape((-1, 6))])


def angular(X):
    """Return a vector of body space without its linear parts."""
    return np.concatenate([X.reshape((-1, 6))[:, :3], np.zeros((len(X) // 6, 3))], axis=1).ravel()


def recursion(s, input):
    """Return the block-diagonal solution of lam = E_psi lam E_psi* + input."""
    lam = input
    for _ in s.parents:
        lam = s.E_psi @ lam @ s.E_psi.T + input
    return lam


def state(model, q, qd, arrays):
    """Return what the equations are made of, in the letters of the paper."""
    s = SimpleNamespace(**arrays["operators"], model=model, parents=model.parents, q=q, qd=qd)
    s.n, s.I, s.one = model.nbodies, np.eye(6 * model.nbodies), np.eye(model.nv)
    s.K, s.tau, s.phi_t, s.P_plus = s.E_phi @ s.G, s.G @ s.H, s.phi - s.I, s.tau_bar @ s.P
    s.Dh, s.Dmh, s.D_inverse = s.L, np.linalg.inv(s.L), np.linalg.inv(s.D)
    s.bias, s.ell, s.nu = arrays["bias"], np.linalg.inv(s.m), s.m.T @ qd
    s.xi = s.Dmh @ s.nu
    # Derivatives by coordinates, [..., i], and rates.
    s.theta = SimpleNamespace(**arrays["theta"])
    s.M_theta = np.einsum("ijd,kj->ikd", s.theta.m, s.m)
    s.M_theta = s.M_theta + np.swapaxes(s.M_theta, 0, 1)
    s.theta.E_phi = _moved(np.linalg.inv(s.phi), s.theta.phi)
    s.theta.E_psi = _moved(np.linalg.inv(s.psi), s.theta.psi)
    s.dot = SimpleNamespace(**{name: X @ qd for name, X in vars(s.theta).items()})
    s.C = s.ell @ s.bias - s.dot.m.T @ qd  # the lemma of section 3
    # Motions, and the recursion (6.5) for lambda.
    V_J, s.V = s.H.T @ qd, s.phi.T @ s.H.T @ qd
    s.V_t, s.X = of_vector(s.V), of_vector(V_J)
    s.Omega, s.Omega_delta = of_vector(angular(s.V)), of_vector(angular(V_J))
    s.V_plus, s.Omega_s, s.slide = s.V - V_J, s.Omega - s.Omega_delta, s.X - s.Omega_delta
    s.lam = recursion(s, -s.X.T @ s.P - s.P @ s.X)
    s.P_ring = s.E_psi @ s.lam @ s.E_psi.T
    s.local = SimpleNamespace(**arrays["local"]) if "local" in arrays else _local(s)
    # One coordinate at a time (A.1); [i, k]: i moves k.
    outboard = np.eye(s.n, dtype=bool)
    for k, parent in enumerate(s.parents):
        outboard[:, k] |= outboard[:, parent] if parent >= 0 else False
    s.outboard, s.columns = outboard, s.H.reshape((s.n, s.n, 6))[np.arange(s.n), np.arange(s.n)]
    of = lambda column, where: diagonal([cross(column) * there for there in where])
    turn = s.columns * np.array([1, 1, 1, 0, 0, 0])
    s.H_delta = np.stack([of(turn[i], np.arange(s.n) == i) for i in range(s.n)])
    s.H_s = np.stack([of(turn[i], outboard[i] & (np.arange(s.n) != i)) for i in range(s.n)])
    s.H_i = np.stack([of(turn[i], outboard[i]) for i in range(s.n)])
    s.X_i = np.stack([of(s.columns[i], np.arange(s.n) == i) for i in range(s.n)])
    s.lam_i = np.stack([recursion(s, -X.T @ s.P - s.P @ X) for X in s.X_i])
    return s


def _local(s):
    """Return rates as they are seen from the body, and of P from its parent, of joints that turn (002 (6.1))."""
    turned = lambda X, Omega: Omega @ X - X @ Omega
    blocks = lambda X: np.stack([block(X, k) for k in range(s.n)])
    rows = lambda X: np.einsum("kki->ki", X.reshape((s.n, s.n, 6)))
    return SimpleNamespace(
        H=rows(s.dot.H + s.H @ s.Omega), M=blocks(s.dot.M - turned(s.M, s.Omega)),
        P=blocks(s.dot.P - turned(s.P, s.Omega)), lam=blocks(s.dot.P - turned(s.P, s.Omega_s)),
        G=rows((s.dot.G - s.Omega @ s.G).T), tau_bar=blocks(s.dot.tau_bar - turned(s.tau_bar, s.Omega)),
    )  # fmt: skip


def _moved(inverse, X):
    """Return the derivatives of -inverse from those of the matrix."""
    return np.einsum("ij,jkd,kl->ild", inverse, X, inverse)


def block(X, k, l=None):
    """Return the block of bodies k and l, or of k."""
    l = k if l is None else l
    return X[6 * k : 6 * k + 6, 6 * l : 6 * l + 6]
