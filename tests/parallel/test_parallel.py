"""Dynamics in logarithmic depth equals the serial functions, in both precisions, and has no long loop.

One program computes all that is compared of a chain; it is the same program whose loops are counted.
"""

import re
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import QUICK, geared, in_single, long, quickly, random_state, relative
from jax.extend.core import jaxprs_in_params

import jaxdyn
from jaxdyn import parallel
from jaxdyn.model.random_models import MOVING_JOINTS, random_chain, random_tree
from jaxdyn.parallel.paths import heavy_paths

SIZES = (7, long(64), long(512))
TOLERANCE = {"float64": 2e-13, "float32": 5e-5}
"""Measured: up to 4e-14 and 2e-5, at 512 bodies; the serial functions in float32 reach 2e-5 too."""
BASE_MOTION = (np.array([0.3, -0.2, 0.5, 1.0, 2.0, -1.0]), np.array([0.1, 0.4, -0.5, 1.0, -2.0, -1.0]))


# ---------------------------------------------------------------------- what is compared
def in_parallel(model, s, **extra):
    q, qd = s["q"], s["qd"]
    m = parallel.innovations_factor(model, q)
    return {
        "poses": parallel.forward_kinematics(model, q),
        "tau": parallel.inverse_dynamics(model, q, qd, s["qdd"], **extra),
        "qdd": parallel.forward_dynamics(model, q, qd, s["tau"], **extra),
        "M x": m @ (m.T @ s["qdd"]),
    }


def serially(model, s, **extra):
    q, qd = s["q"], s["qd"]
    at_rest = model.replace(gravity=jnp.zeros_like(model.gravity)), q, jnp.zeros_like(qd)
    extra = {"form": "sweep"} | extra
    return {
        "poses": jaxdyn.forward_kinematics(model, q),
        "tau": jaxdyn.inverse_dynamics(model, q, qd, s["qdd"], **extra),
        "qdd": jaxdyn.forward_dynamics(model, q, qd, s["tau"], **extra),
        "M x": jaxdyn.inverse_dynamics(*at_rest, s["qdd"], form="sweep"),
    }


def in_double(x):
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), x)


@cache
def chain(n):
    """Return a chain and a state of it whose numbers are those of float32."""
    model = random_chain(n, seed=1)
    return in_double(in_single((model, random_state(model))))


@cache
def compiled(n, precision):
    """Return the parallel program for chains of n bodies."""
    given = in_single(chain(n)) if precision == "float32" else chain(n)
    return jax.jit(in_parallel).lower(*given).compile(compiler_options=QUICK)


serial = quickly(serially)


def errors(found, expected):
    """Return the relative error of each result."""
    pairs = {key: zip(*map(jax.tree.leaves, (found[key], expected[key])), strict=True) for key in expected}
    return {key: max(relative(a, b) for a, b in both) for key, both in pairs.items()}


def shown(found):
    return ", ".join(f"{key}: {error:.1e}" for key, error in found.items())


# ---------------------------------------------------------------------- chains
@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("n", SIZES)
def test_chains_equal_the_serial_functions(n, precision):
    given = in_single(chain(n)) if precision == "float32" else chain(n)
    found = errors(compiled(n, precision)(*given), serial(*chain(n)))
    assert max(found.values()) < TOLERANCE[precision], f"{n} bodies, {precision}: {shown(found)}"


@pytest.mark.parametrize("factor", [long(1e2), 1e4])
def test_float32_is_as_accurate_as_the_serial_function(factor):
    """Light bodies that carry a heavy tip; the Riccati steps without a guess would be off by more than one."""
    model, s = chain(64)
    model = model.replace(inertia=model.inertia.at[-1].multiply(np.float32(factor)))
    truth, single = serial(model, s)["qdd"], in_single((model, s))
    theirs, ours = (relative(f(*single)["qdd"], truth) for f in (serial, compiled(64, "float32")))
    assert ours < 4 * theirs, f"parallel {ours:.1e}, serial {theirs:.1e}"
    assert factor < 1e3 or theirs > 1e-3  # it is a hard case


@pytest.mark.parametrize("change", ["armature", "massless bodies"])
def test_models_that_differ_in_numbers(change):
    """Armature is part of D; two bodies, one after the other, without inertia of their own do no harm."""
    model, s = chain(7)
    numbers = {"inertia": model.inertia.at[2:4].set(0.0)} if change != "armature" else {"armature": 1 + 0.1 * s["tau"]}
    model = model.replace(**numbers)
    found = errors(compiled(7, "float64")(model, s), serial(model, s))
    assert max(found.values()) < 1e-12, shown(found)


# ---------------------------------------------------------------------- loops
def loops_of_program(text):
    """Return the trip counts of all loops of a compiled program."""
    loops = [line for line in text.splitlines() if re.search(r"= .* while\(", line)]
    counts = [re.search(r'"known_trip_count":\{"n":"(\d+)"', line) for line in loops]
    return [int(count[1]) if count else np.inf for count in counts]


def loops_of_trace(jaxpr):
    """Return the lengths of all scans of a traced function, infinity for each `while`."""
    found = []
    for equation in jaxpr.eqns:
        found += [equation.params["length"]] if equation.primitive.name == "scan" else []
        found += [np.inf] if equation.primitive.name == "while" else []
        found += [n for inner in jaxprs_in_params(equation.params) for n in loops_of_trace(inner)]
    return found


@pytest.mark.parametrize("n", SIZES)
def test_no_loop_is_longer_than_logarithmic(n):
    longest = 2 * np.log2(n) + 8
    counts = loops_of_program(compiled(n, "float64").as_text())
    assert max(counts, default=0) <= longest


@pytest.mark.parametrize("n", [7, 64, 512])
def test_no_loop_is_longer_than_logarithmic_before_compiling(n):
    loops = loops_of_trace(jax.make_jaxpr(in_parallel)(*chain(n)).jaxpr)
    assert max(loops, default=0) <= 2 * np.log2(n) + 8


def test_the_serial_functions_have_long_loops():
    """So loops are found where there are some."""
    given = chain(64)
    assert 64 in loops_of_program(jax.jit(serially).lower(*given).compile(compiler_options=QUICK).as_text())
    assert 64 in loops_of_trace(jax.make_jaxpr(jaxdyn.forward_kinematics)(given[0], given[1]["q"]).jaxpr)


def test_programs_grow_with_the_logarithm():
    fd = lambda model, s: parallel.forward_dynamics(model, s["q"], s["qd"], s["tau"])
    small, twice, large = (str(jax.make_jaxpr(fd)(*chain(n))).count("\n") for n in (32, 64, 512))
    assert large - twice < 4 * (twice - small)  # three doublings


# ---------------------------------------------------------------------- other models
MODELS = {
    "all joint types, a chain": lambda: random_chain(10, seed=3, joints=MOVING_JOINTS, armature=True),
    "tree on a floating base": lambda: random_tree(6, seed=1, joints=("revolute",), floating_base=True, armature=True),
}
MORE = {
    "all joint types, two trees": lambda: random_tree(11, seed=2, roots=2, floating_base=True, armature=True),
    "chain on a floating base": lambda: random_tree(5, joints=("revolute",), floating_base=True, branching=0.0),
    "a tree of forty": lambda: random_tree(40, seed=5, joints=("revolute",)),
    "quadruped": lambda: jaxdyn.load("quadruped"),
}


@pytest.mark.parametrize("make", [*MODELS.values(), *map(long, MORE.values())], ids=[*MODELS, *MORE])
def test_models_of_all_kinds(make):
    """With armature, external forces and a moving base."""
    model = make()
    s = random_state(model)
    extra = {"f_ext": s["f_ext"], "base_motion": BASE_MOTION}
    found, expected = (quickly(partial(f, **extra))(model, s) for f in (in_parallel, serially))
    off = errors(found, expected)
    assert max(off.values()) < 1e-12, shown(off)


FACTORS = {
    "joints of three, two and one": lambda: random_chain(3, joints=("spherical", "universal", "helical"), armature=True)
}


@pytest.mark.parametrize("make", [*FACTORS.values(), *map(long, MORE.values())], ids=[*FACTORS, *MORE])
def test_the_factor_is_that_of_the_mass_matrix(make):
    model = make()
    s = random_state(model)

    def of_state(model, s):
        m = parallel.innovations_factor(model, s["q"])
        factor = {"m": m, "matrix": m.as_matrix(), "logdet": m.logdet()}
        products = {"m^-1 x": m.solve(s["tau"]), "m^-* x": m.T.solve(s["tau"]), "m* x": m.T @ s["tau"]}
        return factor | products | {"M": jaxdyn.mass_matrix(model, s["q"], form="sweep")}

    factor = quickly(of_state)(model, s)
    matrix, m = factor["matrix"], factor["m"]
    assert relative(matrix @ matrix.T, factor["M"]) < 1e-13
    assert relative(factor["m* x"], matrix.T @ s["tau"]) < 1e-13
    assert relative(matrix @ factor["m^-1 x"], s["tau"]) < 1e-11
    assert relative(matrix.T @ factor["m^-* x"], s["tau"]) < 1e-11
    assert abs(factor["logdet"] - np.linalg.slogdet(matrix)[1]) < 1e-10
    assert np.all(matrix[~on_one_path(model)] == 0)
    S, P = m.S, m.P
    assert relative(m.D - np.swapaxes(S, 1, 2) @ P @ S, armatures(model, m), scale=1.0) < 1e-12
    assert relative(m.G @ m.D, P @ S, scale=np.abs(P).max()) < 1e-12
    assert relative(m.L @ np.swapaxes(m.L, 1, 2), m.D) < 1e-13
    for k, (name, joint) in enumerate(zip(model.joint_names, model.topology.joints, strict=True)):
        at = model.qd_slice(name)
        assert np.array_equal(matrix[at, at], m.L[k, : joint.nv, : joint.nv])


def on_one_path(model):
    """Return where a factor may differ from zero: in rows of a joint, columns of that joint and of those outboard."""
    body = np.repeat(np.arange(model.nbodies), [joint.nv for joint in model.topology.joints])
    above = np.eye(model.nbodies, dtype=bool)
    for i, parent in enumerate(model.parents):
        if parent >= 0:
            above[:, i] |= above[:, parent]
    return above[body[:, None], body[None]]


def armatures(model, m):
    """Return the armatures as the factor has them, ones where a joint has fewer columns."""
    A = np.zeros(m.D.shape)
    for i, (name, joint) in enumerate(zip(model.joint_names, model.topology.joints, strict=True)):
        A[i] = np.diag([*np.asarray(model.armature)[model.qd_slice(name)], *np.ones(A.shape[1] - joint.nv)])
    return A


def test_mimic_joints_take_the_serial_functions():
    model = geared()
    s = random_state(model)

    def both(model, s):
        given = model, s["q"], s["qd"], s["tau"]
        functions = "inverse_dynamics", "forward_dynamics"
        serial = [getattr(jaxdyn, name)(*given, f_ext=s["f_ext"], form="sweep") for name in functions]
        return [getattr(parallel, name)(*given, f_ext=s["f_ext"]) for name in functions], serial

    for ours, theirs in zip(*quickly(both)(model, s), strict=True):
        assert relative(ours, theirs) < 1e-14


def test_mimic_joints_have_no_factor():
    with pytest.raises(ValueError, match="the innovations factor has no place .* the mimic joints .*mimic=False"):
        parallel.innovations_factor(geared(), np.zeros(2))


def test_a_joint_without_inertia_is_refused():
    model = random_chain(3)
    model = model.replace(inertia=model.inertia.at[2].set(0.0))
    for function in (lambda: parallel.innovations_factor(model, np.zeros(3)), lambda: fd_at_zero(model)):
        with pytest.raises(jaxdyn.ModelError, match="moves no inertia"):
            function()


def fd_at_zero(model):
    return parallel.forward_dynamics(model, np.zeros(model.nq), np.zeros(model.nv), np.zeros(model.nv))


def test_a_model_without_bodies():
    empty = jaxdyn.ModelBuilder("empty").build()
    nothing = np.zeros(0)
    m = parallel.innovations_factor(empty, nothing)
    assert parallel.forward_kinematics(empty, nothing).position.shape == (0, 3)
    assert fd_at_zero(empty).shape == parallel.inverse_dynamics(empty, nothing, nothing, nothing).shape == (0,)
    assert (m @ nothing).shape == m.T.solve(nothing).shape == (0,)
    assert m.as_matrix().shape == (0, 0)


@pytest.mark.parametrize("seed", range(5))
def test_heavy_paths(seed):
    """Every body has one place; paths branch off in the round before; there are at most log2(N) changes of path."""
    rng = np.random.default_rng(seed)
    parents = tuple(int(rng.integers(-1, i)) for i in range(200))
    paths = heavy_paths(parents)
    places = np.concatenate([r.bodies.ravel() for r in paths.rounds])
    assert np.array_equal(places[paths.order], np.arange(200))
    assert len(paths.rounds) <= np.log2(200) + 1
    for before, r in zip((None, *paths.rounds), paths.rounds, strict=False):
        steps = r.bodies.reshape(len(r.bodies), -1)
        real = r.is_real.reshape(steps.shape)
        for inner, outer, is_real in zip(steps, steps[1:], real[1:], strict=False):
            assert np.array_equal(np.array(parents)[outer[is_real]], inner[is_real])
        heads = np.array(parents)[steps[0]]
        assert np.all(heads == -1) if before is None else np.array_equal(heads, before.bodies.ravel()[r.start])


# ---------------------------------------------------------------------- derivatives and batches
def gradients(function, model, s):
    """Return the gradient of a sum of accelerations by configuration, forces and inertias."""
    weights = jnp.cos(jnp.arange(model.nv * 1.0))

    def loss(q, tau, inertia):
        return jnp.vdot(weights, function(model.replace(inertia=inertia), q, s["qd"], tau))

    return jax.grad(loss, argnums=(0, 1, 2))(s["q"], s["tau"], model.inertia)


def both_ways(of, *given):
    """Return what is found of the parallel and of the serial function."""
    serial = lambda *args: jaxdyn.forward_dynamics(*args, form="sweep")
    return [quickly(partial(of, function))(*given) for function in (parallel.forward_dynamics, serial)]


def test_gradients_equal_those_of_the_serial_function():
    for a, b in zip(*both_ways(gradients, *chain(7)), strict=True):
        assert relative(a, b) < 1e-11


@pytest.mark.long
def test_derivatives_equal_those_of_the_serial_function():
    """By every leaf of the model, and forward over reverse, with joints of several types."""
    model = random_chain(7, seed=2, armature=True, joints=("revolute", "prismatic", "universal"))
    s = random_state(model)

    def second(function, model, s):
        def loss(model, q, tau):
            return jnp.vdot(jnp.cos(jnp.arange(model.nv * 1.0)), function(model, q, s["qd"], tau))

        at = model.moving, s["q"], s["tau"]
        along = jax.tree.map(jnp.zeros_like, at[0]), 0.3 * s["q"], s["qd"]
        return jax.jvp(jax.grad(loss, argnums=(0, 1, 2)), at, along)

    ours, theirs = map(jax.tree.leaves, both_ways(second, model, s))
    assert sum(np.abs(b).max() > 0 for b in theirs) > 10
    for a, b in zip(ours, theirs, strict=True):
        assert relative(a, b, scale=max(np.abs(b).max(), 1e-3)) < 1e-10


def derivatives_of_the_factor(derivative):
    """Return a derivative of a sum of entries of the factor, and of the Cholesky factor that it is."""
    model = random_chain(3, seed=2, armature=True)
    s = random_state(model)
    weights = np.sin(np.arange(9.0)).reshape(3, 3)

    def both(model, q, dq):
        ours = lambda q: jnp.vdot(weights, parallel.innovations_factor(model, q).as_matrix())
        M = lambda q: jaxdyn.mass_matrix(model, q, form="sweep")[::-1, ::-1]
        by_matrix = lambda q: jnp.vdot(weights, jnp.linalg.cholesky(M(q))[::-1, ::-1])
        return [derivative(f, q, dq) for f in (ours, by_matrix)]

    return quickly(both)(model, s["q"], s["qd"])


def test_derivatives_of_the_factor():
    """The result does not depend on the guess about which it is computed: nor do its derivatives."""
    ours, theirs = derivatives_of_the_factor(lambda f, q, dq: jax.grad(f)(q))
    assert relative(ours, theirs) < 1e-12


@pytest.mark.long
def test_second_derivatives_of_the_factor():
    ours, theirs = derivatives_of_the_factor(lambda f, q, dq: jax.jvp(jax.grad(f), (q,), (dq,))[1])
    assert relative(ours, theirs) < 1e-11


def test_batches():
    model = random_chain(3, seed=1)
    states = [random_state(model, seed) for seed in range(3)]
    fd = lambda s: parallel.forward_dynamics(model, s["q"], s["qd"], s["tau"], f_ext=s["f_ext"])
    serial = lambda s: jaxdyn.forward_dynamics(model, s["q"], s["qd"], s["tau"], f_ext=s["f_ext"], form="sweep")
    batch = jax.tree.map(lambda *x: np.stack(x), *states)
    assert relative(quickly(jax.vmap(fd))(batch), quickly(jax.vmap(serial))(batch)) < 1e-12
