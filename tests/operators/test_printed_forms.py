"""Equations of 000, 001 and 003 as they are printed or scanned, beside what they have to read: the first fail.

In dense matrices, for a chain at two states; what is true is the library's dynamics of it. All joints are hinges but that
of the base, a screw, whose column is not of length one. The papers' numbers: 1 is the tip, N the base. An index that a
printed sum leaves free is read as 1; what has not the shape of its sum is added as NumPy adds it.
"""

import jax
import numpy as np
import pytest
from helpers.states import quickly, random_state, relative, stacked

import jaxdyn
from jaxdyn.model.random_models import random_chain

N = 4
POINT = np.array([0.2, -0.3, 0.4])
FORCE = np.array([0.3, -1.0, 0.5, 2.0, 0.7, -1.5])


def tilde(x):
    return np.array([[0, -x[2], x[1]], [x[2], 0, -x[0]], [-x[1], x[0], 0]])


def shift(l):
    return np.block([[np.eye(3), tilde(l)], [np.zeros((3, 3)), np.eye(3)]])


def from_library(model, s):
    """What the library makes of a state."""
    q, qd, qdd, tau = s["q"], s["qd"], s["qdd"], s["tau"]
    tip = model.body_names[-1]
    return {
        "poses": jaxdyn.forward_kinematics(model, q),
        "V": jaxdyn.body_velocities(model, q, qd, axes="world"),
        "J": jax.vmap(lambda v: jaxdyn.body_velocities(model, q, v, axes="world"))(np.eye(model.nv)),
        "a": jaxdyn.body_accelerations(model, q, qd, qdd, axes="world"),
        "a_0": jaxdyn.body_accelerations(model, q, qd, 0 * qdd, axes="world"),
        "mass": jaxdyn.mass_matrix(model, q),
        "inverse dynamics": jaxdyn.inverse_dynamics(model, q, qd, qdd),
        "forward dynamics": jaxdyn.forward_dynamics(model, q, qd, tau),
        "tip": (jaxdyn.jacobian(model, q, tip, POINT), jaxdyn.jacobian_bias(model, q, qd, tip, POINT)),
    }


class Chain:
    """A chain without armature at a state, bodies and joints numbered from the tip, in world axes."""

    def __init__(self, model, s, found):
        order = slice(None, None, -1)
        R, p = (x[order] for x in found["poses"])
        self.R, self.p, pi = R, p, np.asarray(model.inertia)[order]
        self.qd, self.qdd, self.tau = s["qd"][order], s["qdd"][order], s["tau"][order]
        self.g = np.asarray(model.gravity)
        self.V = found["V"][order]
        spatial = lambda a: a - np.concatenate([0 * a[:, :3], np.cross(self.V[:, :3], self.V[:, 3:])], axis=1)
        self.lam, self.a_0 = spatial(found["a"][order]), spatial(found["a_0"][order])
        self.mass = found["mass"][order, order]
        self.id, self.fd = found["inverse dynamics"][order], found["forward dynamics"][order]
        self.J_tip, self.rate_tip = found["tip"][0][:, order], found["tip"][1]
        self.c = np.einsum("kij,kj->ki", R, pi[:, 1:4]) / pi[:, :1]  # to the mass centres
        self.m = pi[:, 0]
        full = lambda x: np.array([[x[0], x[1], x[3]], [x[1], x[2], x[4]], [x[3], x[4], x[5]]])
        self.I = [R_k @ full(x[4:]) @ R_k.T for R_k, x in zip(R, pi, strict=True)]
        self.M = np.stack([
            np.block([[I, m * tilde(c)], [-m * tilde(c), m * np.eye(3)]])
            for I, m, c in zip(self.I, self.m, self.c, strict=True)
        ])  # fmt: skip
        columns = found["J"][order, order]  # of joint i, body k
        self.H = np.stack([columns[k, k] for k in range(N)])
        self.l = np.stack([np.zeros(3), *(p[k - 1] - p[k] for k in range(1, N))])  # from joint k to joint k - 1
        self.b = np.array([self.gyroscopic(k) for k in range(N)])
        self.n = self.a_0 - np.array(
            [self.phi(k + 1, k).T @ self.a_0[k + 1] if k < N - 1 else np.zeros(6) for k in range(N)]
        )
        self.up = np.concatenate([np.zeros(3), -self.g])
        self.filter()

    def phi(self, j, k):
        return shift(self.p[k] - self.p[j])

    def gyroscopic(self, k):
        w, v = self.V[k, :3], self.V[k, 3:]
        h = self.M[k] @ self.V[k]
        return np.concatenate([np.cross(w, h[:3]) + np.cross(v, h[3:]), np.cross(w, h[3:])])

    def filter(self):
        """(37)-(43), (81), (82)."""
        self.P, self.P_plus, self.G = np.zeros((N, 6, 6)), np.zeros((N, 6, 6)), np.zeros((N, 6))
        self.D, self.L = np.zeros(N), np.zeros((N, 6, 6))
        for k in range(N):
            phi = self.phi(k, k - 1) if k else np.zeros((6, 6))
            self.P[k] = self.M[k] + phi @ self.P_plus[k - 1] @ phi.T
            self.D[k] = self.H[k] @ self.P[k] @ self.H[k]
            self.G[k] = self.P[k] @ self.H[k] / self.D[k]
            self.L[k] = np.eye(6) - np.outer(self.G[k], self.H[k])
            self.P_plus[k] = self.L[k] @ self.P[k]

    def psi(self, k, i, *, reverse=False):
        """psi(k-, i+) of (72)."""
        factors = [self.L[j] @ self.phi(j, j - 1) for j in range(i + 1, k)]
        return np.linalg.multi_dot([self.phi(k, k - 1), *(factors if reverse else factors[::-1]), np.eye(6)])

    def torques(self, net):
        """Return the torques for net forces of the bodies, (20) and (24)."""
        return np.array([self.H[k] @ sum(self.phi(k, j) @ net[j] for j in range(k + 1)) for k in range(N)])


@pytest.fixture(scope="module")
def arms():
    """One chain at two states: two arms."""
    model = random_chain(N, seed=1, joints=("helical", "revolute", "revolute", "revolute"))
    states = [random_state(model, k) for k in range(2)]
    found = quickly(jax.vmap(lambda s: from_library(model, s)))(stacked(states))
    return [Chain(model, s, jax.tree.map(lambda x: x[k], found)) for k, s in enumerate(states)]


# ---------------------------------------------------------------------- 000
def bias_force(c, printed):
    """(7), with gravity as force F at the mass centre."""
    net = []
    for k in range(N):
        w, v, F = c.V[k, :3], c.V[k, 3:], c.m[k] * c.g
        spin = np.cross(w, c.c[k]) if printed else np.cross(w, np.cross(w, c.c[k]))
        moment = np.cross(w, c.I[k] @ w) + c.m[k] * np.cross(c.c[k], np.cross(w, v)) - np.cross(c.c[k], F)
        b = np.concatenate([moment, c.m[k] * spin + c.m[k] * np.cross(w, v) - F])
        net.append(c.M[k] @ c.lam[k] + b)
    return c.torques(net), c.id


def newton(c, printed):
    """(9), with (8) for the moments."""
    net = []
    for k in range(N):
        (w, v), (wd, vd) = np.split(c.V[k], 2), np.split(c.lam[k], 2)
        turn = np.cross(w, c.c[k]) if printed else np.cross(wd, c.c[k]) + np.cross(w, np.cross(w, c.c[k]))
        moment = c.I[k] @ wd + np.cross(w, c.I[k] @ w) + c.m[k] * np.cross(c.c[k], vd + np.cross(w, v))
        F = c.m[k] * c.g
        net.append(np.concatenate([moment - np.cross(c.c[k], F), c.m[k] * (turn + vd + np.cross(w, v)) - F]))
    return c.torques(net), c.id


def order_of_sums(c, printed):
    """(26), on the terms of (25): the torques that accelerations of the joints take."""
    term = lambda k, i, j: c.H[k] @ c.phi(k, j) @ c.M[j] @ c.phi(i, j).T @ c.H[i] * c.qdd[i]
    found = []
    for k in range(N):
        if printed:
            found.append(sum(term(k, 0, j) for _ in range(N) for j in range(min(0, k) + 1)))
        else:
            found.append(sum(term(k, i, j) for i in range(N) for j in range(min(i, k) + 1)))
    return found, c.mass @ c.qdd


def composite_body(c, printed):
    """The recursions after (33), and the mass matrix by (32)."""
    rho, Cr, J = 0.0, np.zeros(3), np.zeros((3, 3))
    found = np.zeros((N, N))
    steiner = lambda x: x @ x * np.eye(3) - np.outer(x, x)
    for i in range(N):
        inner = Cr / rho if rho else Cr
        J = J + c.I[i] + rho * steiner(inner + c.l[i]) - rho * steiner(inner)
        before, rho = rho, rho + c.m[i]
        Cr = (inner + c.l[i]) * before + c.m[i] * (rho if printed else c.c[i])
        x = np.block([[J, tilde(Cr)], [-tilde(Cr), rho * np.eye(3)]]) @ c.H[i]
        for k in range(i, N):
            x = c.phi(k, k - 1) @ x if k > i else x
            found[k, i] = found[i, k] = c.H[k] @ x
    return found, c.mass


def filter_and_smoother(c, printed):
    """(35)-(47), with gravity as the upward acceleration of the base."""
    z_plus, e = np.zeros((N, 6)), np.zeros(N)
    for k in range(N):
        z = c.b[k] + (c.phi(k, k - 1) @ z_plus[0 if printed else k - 1] if k else 0)
        e[k] = (c.tau[k] - c.H[k] @ z) / c.D[k]
        z_plus[k] = z + c.G[k] * (c.D[k] * e[k]) + c.P_plus[k] @ c.n[k]
    lam, found = c.up, np.zeros(N)
    for k in reversed(range(N)):
        ahead = (lam if k == N - 1 else c.phi(k + 1, k).T @ lam) + c.n[k]
        found[k] = e[k] - c.G[k] @ ahead
        lam = ahead + c.H[k] * found[k]
    return found, c.fd


def delta_plus(c):
    """(80)."""
    total = lambda k: sum(
        (c.psi(i, k).T @ np.outer(c.H[i], c.H[i]) / c.D[i] @ c.psi(i, k) for i in range(k + 1, N)), np.zeros((6, 6))
    )
    return [total(k) for k in range(N)]


def by_moments(c, reverse):
    """(70)-(72): accelerations by torques, as a matrix."""
    Delta, found = delta_plus(c), np.zeros((N, N))
    for k in range(N):
        found[k, k] = 1 / c.D[k] + c.G[k] @ Delta[k] @ c.G[k]
        d = c.G[k] @ Delta[k] - found[k, k] * c.H[k]
        for i in range(k):
            found[k, i] = found[i, k] = d @ c.psi(k, i, reverse=reverse) @ c.G[i]
    return found, np.linalg.inv(c.mass)


def terms_of_77(c, k):
    """Of (79): ahead of joint k by i, of the torque j; what is meant by them."""
    ahead = lambda i: c.psi(i, k).T @ c.H[i] / c.D[i]
    return ahead, lambda i, j: ahead(i) * (c.H[i] @ c.psi(i, j) @ c.G[j] * c.tau[j])


def inner_sum(c, printed):
    """(77), with (74): accelerations by torques."""
    e = lambda k: (c.tau[k] - c.H[k] @ sum((c.psi(k, i) @ c.G[i] * c.tau[i] for i in range(k)), np.zeros(6))) / c.D[k]
    found = []
    for k in range(N):
        ahead, term = terms_of_77(c, k)
        rest = sum((ahead(i) * c.tau[i] for i in range(k + 1, N)), np.zeros(6))
        rest -= sum((term(i, 0 if printed else j) for i in range(k + 1, N) for j in range(i)), np.zeros(6))
        found.append(e(k) - c.G[k] @ rest)
    return found, np.linalg.solve(c.mass, c.tau)


def limits_of_sums(c, printed):
    """(78), on the terms of (79) and k = 1."""
    _, term = terms_of_77(c, 0)
    truth = sum(term(i, j) for i in range(1, N) for j in range(i))
    last = N - 1 if printed else N
    return sum(term(i, j) for j in range(N - 1) for i in range(max(1, j + 1), last)), truth


def inverse_by_columns(c, printed):
    """(83)."""
    Delta_plus, found = np.zeros((6, 6)), np.zeros((N, N))
    T = lambda name, X: X if printed == name else X.T
    for i in reversed(range(N)):
        found[i, i] = 1 / c.D[i] + c.G[i] @ Delta_plus @ c.G[i]
        alpha = Delta_plus @ c.G[i] - found[i, i] * c.H[i]
        for k in reversed(range(i)):
            alpha = T("alpha", c.phi(k + 1, k)) @ alpha
            found[k, i] = found[i, k] = c.G[k] @ alpha
            alpha = c.L[k].T @ alpha
        own = c.H[i] @ c.H[i] if printed == "own" else np.outer(c.H[i], c.H[i])
        Delta_minus = c.L[i].T @ Delta_plus @ c.L[i] + own / c.D[i]
        if i:
            Delta_plus = T("Delta", c.phi(i, i - 1)) @ Delta_minus @ c.phi(i, i - 1)
    return found, np.linalg.inv(c.mass)


def articulated_body(c, printed):
    """(84), P = [[J, C rho], [rho C*, rho]]: D of all hinges; truly what the inverses of the mass matrix's corners give."""
    rho, Cr, J = np.zeros((3, 3)), np.zeros((3, 3)), np.zeros((3, 3))
    found = []
    for k in range(N - 1):  # that of the base is no hinge
        C = Cr @ np.linalg.inv(rho) if k else Cr
        moved = C + (c.l[k] if printed == "L" else tilde(c.l[k]))
        J = J + c.I[k] + moved @ rho @ moved.T - C @ rho @ C.T
        before, rho = rho, rho + c.m[k] * np.eye(3)
        Cr = moved @ before + c.m[k] * (rho if printed == "p" else tilde(c.c[k]))
        h = c.H[k, :3]
        D = h @ J @ h
        left = np.eye(3) - np.outer(J @ h, h) / D
        rho, Cr, J = rho - np.outer(Cr.T @ h, Cr.T @ h) / D, left @ Cr, left @ J
        found.append(D)
    return found, [1 / np.linalg.inv(c.mass[: k + 1, : k + 1])[k, k] for k in range(N - 1)]


# ---------------------------------------------------------------------- 001
def outward(c, nu, printed=False):
    """The second loop of (15) and (18); lambda(k + 1, k), read as lambda(k), is not known yet where it is printed."""
    lam, found = np.zeros(6), np.zeros(N)
    for k in reversed(range(N)):
        psi, K = (c.phi(k + 1, k) @ x if k < N - 1 else 0 * x for x in (c.L[k], c.G[k]))
        here = psi.T @ lam + c.H[k] * nu[k]
        found[k] = nu[k] - K @ (here if printed else lam)
        lam = here
    return found


def recursion_of_15(c, printed):
    """The recursion of (15), without biases."""
    z, nu = np.zeros(6), np.zeros(N)
    for k in range(N):
        if k:
            z = c.phi(k, k - 1) @ (c.L[k - 1] @ z + c.G[k - 1] * c.tau[k - 1])
        nu[k] = (c.tau[k] - c.H[k] @ z) / c.D[k]
    return outward(c, nu, printed), np.linalg.solve(c.mass, c.tau)


def at_tip(c):
    """phi(1, 0)."""
    return shift(c.R[0] @ POINT)


def recursion_of_18(c, printed):
    """The recursion of (18); as printed, k = 1 takes z(0), which is none, for the z(1) that is there."""
    z, nu = at_tip(c) @ FORCE, np.zeros(N)
    for k in range(N):
        if k or printed:
            z = c.phi(k, k - 1) @ c.L[k - 1] @ z if k else np.zeros(6)
        nu[k] = -c.H[k] @ z / c.D[k]
    return outward(c, nu), -np.linalg.solve(c.mass, c.J_tip.T @ FORCE)


def free(c, printed):
    """Accelerations of the joints and the tip, free of the other arm; as printed, with no change of the velocity."""
    return c.fd, c.J_tip @ c.fd + (0 if printed else c.rate_tip)


def effective_inverse(c):
    """Lambda^-1 by (20)."""
    psi = [c.psi(k, 0) if k else np.eye(6) for k in range(N)]
    L = lambda k: c.L[0] if k else np.eye(6)
    return sum(
        at_tip(c).T @ L(k).T @ psi[k].T @ np.outer(c.H[k], c.H[k]) @ psi[k] @ L(k) @ at_tip(c) / c.D[k]
        for k in range(N)
    )


def closed_chain(arms, printed):
    """(21)-(26), against both equations of motion and the constraint in one system."""
    (one, a_1), (two, a_2) = (free(c, printed) for c in arms)
    f = np.linalg.solve(sum(effective_inverse(c) for c in arms), a_2 - a_1)
    moved = [x * np.linalg.solve(c.mass, c.J_tip.T @ f) for x, c in zip((1, -1), arms, strict=True)]
    found = np.concatenate([one + moved[0], two + moved[1], f])
    mass, zero = [c.mass for c in arms], np.zeros((N, N))
    L = np.concatenate([arms[0].J_tip, -arms[1].J_tip], axis=1)
    system = np.block([[np.block([[mass[0], zero], [zero, mass[1]]]), -L.T], [L, np.zeros((6, 6))]])
    torques = [c.mass @ c.fd for c in arms]
    return found, np.linalg.solve(system, np.concatenate([*torques, arms[1].rate_tip - arms[0].rate_tip]))


# ---------------------------------------------------------------------- 003
def control(c, printed):
    """(19)-(28): Psi and psi inward, accelerations outward; f_c = I^-1 tau."""
    I = np.array([h @ h for h in c.H])
    f_c = c.tau / I
    a_non = c.a_0 + c.up
    net = [-(c.gyroscopic(k) + c.M[k] @ a_non[k]) for k in range(N)]
    Psi, psi = [c.M[0]], [-net[0]]
    for k in range(1, N):
        T, P, S, r = c.phi(k, k - 1).T, c.H[k - 1], Psi[-1], psi[-1]
        PP, r_P = P @ S @ P, P @ r
        torque = f_c[k - 1] * (1 if printed == "f_c" else I[k - 1])
        if printed == "(26)":
            left = S - np.outer(S @ P, P) @ np.linalg.inv(S)
        else:
            left = S - np.outer(S @ P, S @ P) / PP
        inner = S @ P / PP * torque - r_P + r if printed == "(27)" else S @ P / PP * (torque - r_P) + r
        Psi.append(c.M[k] + T.T @ left @ T)
        psi.append(T.T @ inner - net[k])
    a, found = np.zeros(6), np.zeros(N)
    for k in reversed(range(N)):
        before = c.phi(k + 1, k).T @ a if k < N - 1 else a
        torque = f_c[k] * (1 if printed == "f_c" else I[k])
        found[k] = (torque - c.H[k] @ (Psi[k] @ before + psi[k])) / (c.H[k] @ Psi[k] @ c.H[k])
        a = before + c.H[k] * found[k]
    return found, c.fd


def least_index(c, printed):
    """The index of section V, least: its last term is along the joint; as printed, along the body's acceleration."""
    J = np.stack([c.phi(i, k).T @ c.H[i] if i >= k else np.zeros(6) for k in range(N) for i in range(N)])
    J = J.reshape(N, N, 6).swapaxes(1, 2)  # of body k, by joint i
    net = [-(c.gyroscopic(k) + c.M[k] @ (c.a_0[k] + c.up)) for k in range(N)]
    last = sum(J[k].T @ np.full(6, c.tau[k]) for k in range(N)) if printed else c.tau
    return np.linalg.solve(c.mass, sum(J[k].T @ net[k] for k in range(N)) + last), c.fd


def particle(c, printed):
    """Gibbs' sum over particles: its slope by the acceleration along y is the mass times that."""
    m, y, d = c.m[0], c.lam[0, 4], 0.5
    term = (lambda y: m * y / 2) if printed else (lambda y: m * y * y / 2)
    return [(term(y + d) - term(y - d)) / (2 * d)], [m * y]


FORMS = {
    "000 (7)": (bias_force, True),
    "000 (9)": (newton, True),
    "000 (26)": (order_of_sums, True),
    "000 after (33)": (composite_body, True),
    "000 (36)": (filter_and_smoother, True),
    "000 (72)": (by_moments, True),
    "000 (77)": (inner_sum, True),
    "000 (78)": (limits_of_sums, True),
    "000 (83), H H*": (inverse_by_columns, "own"),
    "000 (83), phi Delta phi": (inverse_by_columns, "Delta"),
    "000 (83), alpha": (inverse_by_columns, "alpha"),
    "000 (84), mass centre": (articulated_body, "p"),
    "000 (84), L": (articulated_body, "L"),
    "001 recursion of (15)": (recursion_of_15, True),
    "001 recursion of (18)": (recursion_of_18, True),
    "001 after (25)": (closed_chain, True),
    "003 (26)": (control, "(26)"),
    "003 (27)": (control, "(27)"),
    "003 f_c for I f_c": (control, "f_c"),
    "003 V, index": (least_index, True),
    "003 V, particles": (particle, True),
}


@pytest.mark.parametrize("equation", FORMS)
def test_what_is_printed_is_wrong_and_the_correction_is_not(arms, equation):
    form, printed = FORMS[equation]
    given = [arms] if form is closed_chain else arms
    for c in given:
        assert relative(*form(c, False)) < 1e-11
    assert min(relative(*form(c, printed)) for c in given) > 1e-3
