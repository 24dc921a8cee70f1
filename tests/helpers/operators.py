"""Spatial operators as dense matrices, from their definitions."""

import numpy as np


def _cross(v):
    return np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])


def by_numpy(model, position, rotation, jacobians, armature):
    """Return the same as dense matrices, from the definitions (001 sections 2-3), body after body."""
    n, nv = model.nbodies, model.nv
    own = [model.qd_slice(name) for name in model.joint_names]
    at = [slice(6 * k, 6 * k + 6) for k in range(n)]
    H, E, M, P = np.zeros((nv, 6 * n)), *np.zeros((3, 6 * n, 6 * n))
    A, D, G = np.diag(armature), np.zeros((nv, nv)), np.zeros((6 * n, nv))
    for k, parent in enumerate(model.parents):
        H[own[k], at[k]] = jacobians[k][:, own[k]].T
        m, h, I = model.inertia[k, 0], model.inertia[k, 1:4], model.inertia[k, 4:]
        J = rotation[k] @ np.array([[I[0], I[1], I[3]], [I[1], I[2], I[4]], [I[3], I[4], I[5]]]) @ rotation[k].T
        h = _cross(rotation[k] @ h)
        M[at[k], at[k]] = np.block([[J, h], [-h, m * np.eye(3)]])
        if parent >= 0:
            E[at[parent], at[k]] = np.block(
                [[np.eye(3), _cross(position[k] - position[parent])], [np.zeros((3, 3)), np.eye(3)]]
            )
    P[:] = M
    for k, parent in reversed(list(enumerate(model.parents))):
        h, p = H[own[k], at[k]], P[at[k], at[k]]
        D[own[k], own[k]] = h @ p @ h.T + A[own[k], own[k]]
        G[at[k], own[k]] = p @ h.T @ np.linalg.inv(D[own[k], own[k]])
        if parent >= 0:
            phi = E[at[parent], at[k]]
            P[at[parent], at[parent]] += phi @ (p - G[at[k], own[k]] @ h @ p) @ phi.T
    I, L = np.eye(6 * n), np.linalg.cholesky(D)
    tau_bar, K = I - G @ H, E @ G
    phi, psi = np.linalg.inv(I - E), np.linalg.inv(I - E @ tau_bar)
    m = (np.eye(nv) + H @ phi @ K) @ L
    dense = {
        "H": H, "phi": phi, "psi": psi, "E_phi": E, "E_psi": E @ tau_bar, "M": M, "P": P, "P_plus": tau_bar @ P, "D": D,
        "D^-1": np.linalg.inv(D), "L": L, "L^-1": np.linalg.inv(L), "G": G, "K": K, "tau_bar": tau_bar, "A": A, "m": m,
        "m^-1": np.linalg.inv(m),
    }  # fmt: skip
    return dense | {f"{name}.T": X.T for name, X in dense.items()}
