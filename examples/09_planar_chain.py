"""A chain in the plane: what the filter costs there, counted and measured beside the mass matrix and its factor."""

import importlib.util
import os
import tempfile
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # both ways are timed on one core

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from jaxdyn.cli import table

jax.config.update("jax_enable_x64", True)


# ---------------------------------------------------------------------- the recursion (000, section XII)
# A state has three components: the moment, and the force along y (inward along the link) and z. Links are rigid rods
# at rest, numbered from the tip. The steps work on numbers of any kind: here first on such as count their operations.
def cross_link(z, P, link):
    """Predict: z -> phi z, P -> phi P phi* + M; before it P(1) = P(2) = P(4) = 0."""
    (z1, z2, z3), (P3, P5, P6) = z, P
    l, m, mp, I = link
    with counting("state propagation"):
        z1 = z1 - l * z3
    with counting("inertia propagation"):
        lP6 = l * P6
        P1, P2, P4 = l * lP6 + I, -(l * P5), -(lP6 + mp)
        P3, P6 = P3 + m, P6 + m
    return (z1, z2, z3), (P1, P2, P3, P4, P5, P6)


def cross_joint(z, P, tau, turn):
    """Correct z and P by the torque, and turn them into the axes of the next link."""
    (z1, z2, z3), (P1, P2, P3, P4, P5, P6), (c, s) = z, P, turn
    with counting("gain"):
        g2, g3 = P2 / P1, P4 / P1
    with counting("innovations"):
        e = tau - z1
    with counting("residuals"):
        e_plus = e / P1
    with counting("state update"):
        z2, z3 = z2 + g2 * e, z3 + g3 * e
        z2, z3 = c * z2 - s * z3, s * z2 + c * z3
    with counting("inertia update"):
        P3, P5, P6 = P3 - g2 * P2, P5 - g3 * P2, P6 - g3 * P4
        y = s * (P3 - P6) + c * (P5 + P5)
        x = s * y
        P3, P5, P6 = P3 - x, c * y - P5, P6 + x
    return (tau, z2, z3), (P3, P5, P6), (g2, g3, e_plus)


def smooth(lam, gain, link, turn):
    """Find the joint's acceleration, and hand on the link's."""
    (l1, l2, l3), (g2, g3, e_plus), (c, s) = lam, gain, turn
    with counting("costate update"):
        l2, l3 = c * l2 + s * l3, c * l3 - s * l2
    with counting("joint acceleration"):
        a = e_plus - l1 - g2 * l2 - g3 * l3
    with counting("costate update"):
        l1 = l1 + a
    with counting("costate propagation"):
        l3_outer = l3 - link[0] * l1
    return (l1, l2, l3_outer), a


class counting:
    """Counts the operations on `Number`s under the name of a row of the paper's table II."""

    rows, name = {}, None

    def __init__(self, name):
        self.here = name

    def __enter__(self):
        counting.name = self.here

    def __exit__(self, *_):
        counting.name = None


class Number(float):
    """A number that counts what is done with it."""

    def count(kind, operation):
        def counted(self, other):
            counting.rows.setdefault(counting.name, Counter())[kind] += 1
            return Number(operation(self, other))

        return counted

    __add__, __sub__ = count("add", float.__add__), count("add", float.__sub__)
    __mul__, __truediv__ = count("multiply", float.__mul__), count("divide", float.__truediv__)

    def __neg__(self):
        return Number(-float(self))  # a change of sign is none


def numbers(x):
    return jax.tree.map(Number, x)


one = numbers(((0.1, 0.2, 0.3), (0.4, 0.5, 0.6), (1.0, 2.0, 1.0, 0.7), 0.5, (0.8, 0.6), (0.1, 0.2, 0.3)))
z, P, link, torque, turn, lam = one
z, P = cross_link(z, P, link)
z, P, gain = cross_joint(z, P, torque, turn)
smooth(lam, gain, link, turn)

PAPER = {
    "state propagation": (1, 1, 0), "inertia propagation": (4, 3, 0), "gain": (0, 0, 2), "innovations": (1, 0, 0),
    "residuals": (0, 0, 1), "state update": (5, 6, 0), "inertia update": (10, 9, 0), "costate propagation": (1, 1, 0),
    "joint acceleration": (3, 2, 0), "costate update": (3, 4, 0),
}  # fmt: skip
KINDS = ("add", "multiply", "divide")
print("A chain in the plane: operations of filter and smoother per link, counted here and (in brackets) in the paper")
counts = {name: [counting.rows[name][kind] for kind in KINDS] for name in PAPER}
totals = [np.sum(list(x.values()), axis=0) for x in (counts, PAPER)]
lines = [(name, *(f"{a} ({b})" for a, b in zip(counts[name], PAPER[name]))) for name in PAPER]
print(table(("table II", *KINDS), [*lines, ("total", *(f"{a} ({b})" for a, b in zip(*totals)))]))

# Table III: what assembling the N x N mass matrix takes; rows repeat once for a link, or for a pair of them.
LINKS = {"mass": (1, 0), "mass center": (2, 1), "rotational inertia": (3, 3)}
PAIRS = {"state propagation": (1, 1), "state update": (2, 4)}
print("\n" + table(("table III", "add", "multiply", "times"), [
    *((name, *map(str, x), "N") for name, x in LINKS.items()),
    *((name, *map(str, x), "N (N + 1) / 2") for name, x in PAIRS.items()),
    ("total", "6 N + 3 N (N + 1) / 2", "4 N + 5 N (N + 1) / 2", ""),
]))  # fmt: skip


def half(rows):
    """Return flops, by which the paper means half the additions and multiplications."""
    return sum(map(sum, rows.values())) / 2


def assembled(n):
    return half(LINKS) * n + half(PAIRS) * n * (n + 1) / 2 + n**3 / 3 + n**2  # 2 N^2 + 7 N, then Cholesky


def crossover(recursive, matrix):
    return next(n for n in range(1, 100) if recursive(n) < matrix(n))


printed = crossover(lambda n: 27 * n, lambda n: 2 * n * (n + 5) + n**3 / 3 + n**2)
corrected = crossover(lambda n: 27 * n, assembled)
flops = sum(totals[0][:2]) / 2
counted = crossover(lambda n: flops * n, assembled)
print("\nFrom how many links on the filter takes fewer operations than the mass matrix and its Cholesky factor")
ways = {
    "by the formulas printed, 27 N against N^3/3 + N^2 + 2 N (N + 5)": printed,
    "by the rows printed, 27 N against N^3/3 + N^2 + 2 N^2 + 7 N (corrected)": corrected,
    f"by the operations counted here, {flops:.0f} N against the same": counted,
}
for way, n in ways.items():
    print(f"  {way:73s} N >= {n}")


# ---------------------------------------------------------------------- measured
# The same steps in a scan, against the matrix: M_ij = integral of (r - p_i) . (r - p_j) dm outboard of both joints.
@jax.jit
def by_filter(links, turns, tau):
    def inward(carry, body):
        link, turn, tau = body
        *carry, gain = cross_joint(*cross_link(*carry, link), tau, turn)
        return tuple(carry), gain

    def outward(lam, body):
        return smooth(lam, *body)

    nothing = ((jnp.zeros(()),) * 3,) * 2
    _, gains = jax.lax.scan(inward, nothing, (links, turns, tau))
    return jax.lax.scan(outward, nothing[0], (gains, links, turns), reverse=True)[1]


@jax.jit
def by_matrix(links, turns, tau):
    l, m, mp, I = links
    angle = jnp.cumsum(jnp.arctan2(turns[1], turns[0])[::-1])[::-1]  # of each link, in the axes of the base
    y = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
    joint = -jnp.cumsum((l[:, None] * y)[::-1], axis=0)[::-1] + l[:, None] * y
    moment = m[:, None] * joint - mp[:, None] * y
    second = I + m * (joint**2).sum(1) - 2 * mp * (joint * y).sum(1)
    mass, moment, second = (jnp.cumsum(x, axis=0) for x in (m, moment, second))
    i = jnp.arange(len(m))
    k = jnp.minimum(i[:, None], i[None])  # the body outboard of both joints
    shared = (moment[k] * (joint[:, None] + joint[None])).sum(-1)
    M = second[k] - shared + mass[k] * (joint @ joint.T)
    return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(M, lower=True), tau)


def planar_chain(n):
    """Return rods in the paper's numbering, the sines and cosines of the joints' angles, and torques."""
    rng = np.random.default_rng(n)
    length, mass, angle = rng.uniform(0.5, 1, n), rng.uniform(1, 2, n), rng.uniform(-1, 1, n)
    links = length, mass, mass * length / 2, mass * length**2 / 3
    return tuple(map(jnp.asarray, links)), (jnp.cos(angle), jnp.sin(angle)), jnp.asarray(rng.normal(size=n)), angle


# One such chain as a model: x is the axis of all joints, the base is last.
links, turns, torques, angles = planar_chain(6)
builder = jaxdyn.ModelBuilder("planar", gravity=(0, 0, 0))
for k in reversed(range(6)):
    l, m = float(links[0][k]), float(links[1][k])
    place = {} if k == 5 else {"parent": f"link_{k + 1}", "xyz": (0, -float(links[0][k + 1]), 0)}
    rod = m * l * l / 12
    builder.add_body(f"link_{k}", axis=(1, 0, 0), mass=m, com=(0, -l / 2, 0), inertia=(rod, 0.01, rod), **place)
chain = builder.build()
expected = jaxdyn.forward_dynamics(chain, angles[::-1].copy(), jnp.zeros(6), torques[::-1])[::-1]
error = max(float(jnp.abs(f(links, turns, torques) - expected).max()) for f in (by_filter, by_matrix))
print(f"\nBoth are forward dynamics of the same chain as a model, up to {error:.0e} 1/s^2")
assert error < 1e-9


def microseconds(f, *args):
    jax.block_until_ready(f(*args))
    runs = []
    for _ in range(30):
        start = time.perf_counter()
        jax.block_until_ready(f(*args))
        runs.append(time.perf_counter() - start)
    return 1e6 * min(runs)


sizes = (2, 4, 8, 32, 128, 256)
times = {f: [microseconds(f, *planar_chain(n)[:3]) for n in sizes] for f in (by_filter, by_matrix)}
lines = [(str(n), *(f"{t[i]:.0f}" for t in times.values())) for i, n in enumerate(sizes)]
print("Time of one evaluation, us")
print(table(("links", "filter and smoother", "mass matrix and factor"), lines))

if importlib.util.find_spec("matplotlib"):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    for measured, label in zip(times.values(), ("filter and smoother", "mass matrix and its factor")):
        plt.loglog(sizes, measured, "o-", label=label)
    plt.xlabel("links")
    plt.ylabel("time of one evaluation, us")
    plt.legend()
    path = Path(tempfile.mkdtemp()) / "planar_chain.png"
    plt.savefig(path)
    print(f"Plotted in {path}")
