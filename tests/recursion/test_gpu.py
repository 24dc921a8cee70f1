"""What can be proved of a GPU without one: programs lower for it, with few steps in a row, and say the same.

Where JAX has found a GPU, the last test runs on it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import long, quickly, relative
from jax.interpreters import mlir
from jaxlib.mlir import ir

import jaxdyn
from jaxdyn.model.random_models import random_tree
from jaxdyn.recursion import Walk, compile_for, limb_groups
from jaxdyn.simulate import rollout

# Parents of real robots without their floating bases: 2 legs of 6, a torso of 2, on it 2 arms of 8 and a head of 2.
TALOS = (-1, 0, 1, 2, 3, 4, -1, 6, 7, 8, 9, 10, -1, 12, 13, 14, 15, 16, 17, 18, 19, 20)
TALOS = (*TALOS, 13, 22, 23, 24, 25, 26, 27, 28, 13, 30)
BATCH, STEPS = 4, 5


class Loop(NamedTuple):
    """A loop of a lowered program."""

    steps: int
    gathers: int
    inner: list


def loops_of(exported):
    """Return the loops of an exported program, in the order in which they run; calls are followed."""
    with mlir.make_ir_context():
        module = ir.Module.parse(exported.mlir_module())
        functions = {f.name.value: f for f in module.body.operations}

        def within(block):
            loops, gathers = [], 0
            for op in block.operations:
                name = op.operation.name
                gathers += "gather" in name
                if name == "stablehlo.while":
                    condition, body = op.regions
                    inner, found = within(body.blocks[0])
                    loops.append(Loop(length_of(condition.blocks[0]), found, inner))
                elif name == "func.call":
                    inner, found = within(functions[op.attributes["callee"].value].regions[0].blocks[0])
                    loops, gathers = loops + inner, gathers + found
                else:
                    for region in op.regions:
                        for inside in region.blocks:
                            inner, found = within(inside)
                            loops, gathers = loops + inner, gathers + found
            return loops, gathers

        return within(functions["main"].regions[0].blocks[0])[0]


def length_of(condition):
    """Return how often a loop runs that counts from 0: the constant with which its condition compares."""
    compare, _ = condition.operations
    assert compare.operation.name == "stablehlo.compare"
    assert "LT" in str(compare.attributes["comparison_direction"])
    (length,) = ir.DenseIntElementsAttr(compare.operands[1].owner.attributes["value"])
    return length


def exported(function, *args):
    with compile_for("cuda"):
        return jax.export.export(jax.jit(function), platforms=["cuda"])(*args)


def inputs(model, batch=BATCH):
    rng = np.random.default_rng(0)
    dq, qd, tau = rng.normal(size=(3, batch, model.nv))
    return jax.vmap(jaxdyn.integrate, (None, None, 0))(model, jaxdyn.neutral(model), jnp.asarray(dq)), qd, tau


def programs(model):
    """Return forward dynamics of a batch, its VJP and a rollout; functions of (q, qd, tau)."""
    dynamics = jax.vmap(lambda *state: jaxdyn.forward_dynamics(model, *state))
    run = lambda q, qd, tau: rollout(model, q, qd, jnp.broadcast_to(tau, (STEPS, model.nv)), dt=0.01).q
    return dynamics, lambda *state: jax.vjp(dynamics, *state)[1](state[2]), jax.vmap(run)


def humanoid():
    """Return a model with the tree of TALOS on a floating base."""
    builder = jaxdyn.ModelBuilder("humanoid")
    link = {"mass": 1.0, "com": (0.1, 0.0, 0.2), "inertia": (0.1, 0.2, 0.15)}
    builder.add_body("0", joint="free", **link)
    for body, parent in enumerate(TALOS):
        axis = np.eye(3)[body % 3]
        builder.add_body(str(body + 1), str(parent + 1), xyz=(0.1, 0, 0.3), axis=axis, **link)
    return builder.build()


@pytest.fixture(scope="module")
def robots():
    return {"quadruped": jaxdyn.load("quadruped"), "humanoid": humanoid()}


# ---------------------------------------------------------------------- tables
@pytest.mark.parametrize(
    ("parents", "shapes"),
    [
        ((-1, 0, 1), [(3, 1)]),
        ((-1, 0, -1, 2), [(2, 2)]),
        (TALOS, [(6, 2), (2, 1), (8, 2), (2, 1)]),
        ((-1, 0, 1, 2, 2, 0, 0), [(1, 1), (2, 1), (1, 2), (1, 2)]),
    ],
)
def test_groups_of_limbs(parents, shapes):
    """Every body is in one place, after its parent; side by side are chains of one length."""
    groups = limb_groups(parents)
    assert [group.shape for group in groups] == shapes
    seen = []
    for group in groups:
        for lane in group.T.tolist():
            assert parents[lane[0]] < 0 or parents[lane[0]] in seen
            assert [parents[body] for body in lane[1:]] == lane[:-1]
        seen += group.ravel().tolist()
    assert sorted(seen) == list(range(len(parents)))


@pytest.mark.parametrize("bases", [(), (0,), (0, 7)])
def test_side_by_side_is_depth_first(bases):
    """Both ways through a forest find the same results, going outward and inward."""
    parents = (-1, 0, 1, 0, 3, 4, 4, -1, 7, 8, 7, 10, 7, -1, 13)
    rng = np.random.default_rng(1)
    scale, shift = rng.uniform(0.5, 1.5, (2, len(parents), 3))

    def sweeps(walk):
        step = lambda carry, body: (body[0] * carry + body[1], body[0] * carry + body[1])
        bodies = walk.take((scale, shift))
        total, inward = walk.inward(step, 0.0, bodies)
        return walk.join(walk.outward(step, jnp.ones(3), bodies)), walk.join(inward), total

    ways = [Walk(parents, bases, side_by_side=choice) for choice in (False, True)]
    assert len(ways[1].stages) > len(ways[0].stages)
    serial, lanes = (quickly(lambda: sweeps(way))() for way in ways)
    for a, b in zip(serial, lanes, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


def test_the_tree_of_a_real_humanoid(robot_data):
    path = robot_data / "talos_data/robots/talos_reduced.urdf"
    with pytest.warns(jaxdyn.ModelWarning):  # of its inertias
        model = jaxdyn.load(path, floating_base=True)
    real = limb_groups(tuple(parent - 1 for parent in model.parents[1:]))
    assert sorted(group.shape for group in real) == sorted(group.shape for group in limb_groups(TALOS))


# ---------------------------------------------------------------------- programs
@pytest.mark.parametrize(("name", "sweep"), [("quadruped", [3]), long("humanoid", [6, 2, 8, 2])])
def test_few_steps_follow_one_another(robots, name, sweep):
    """A sweep over the quadruped has 3 steps, over the humanoid of 32 hinges 18; nothing is looked up in them."""
    dynamics, pulled, run = (loops_of(exported(f, *inputs(robots[name]))) for f in programs(robots[name]))
    base = [6]  # a floating base is solved by a loop over the six columns of its inertia
    outward, inward = sweep, sweep[::-1]
    assert [loop.steps for loop in dynamics] == outward + inward + base + outward
    assert [loop.steps for loop in pulled] == (outward + inward + base + outward) + (inward + outward) + (
        outward + inward
    )
    (time,) = (loop for loop in run if loop.inner)
    assert time.steps == STEPS
    assert [loop.steps for loop in time.inner] == outward + inward + base + outward
    for loop in (*dynamics, *pulled, *time.inner):
        assert (loop.gathers, loop.inner) == (0, [])


@pytest.mark.parametrize(
    ("bodies", "seed", "joints"), [(4, 6, ("revolute",)), long(7, 4, ("revolute", "revolute", "spherical"))]
)
def test_results_are_those_of_a_cpu(bodies, seed, joints):
    """Programs for a GPU, run here: gradients of accelerations by state and inertias, on a branched tree."""
    model = random_tree(bodies, seed=seed, joints=joints)
    state = inputs(model, 2)
    assert len(Walk(model.parents, side_by_side=True).stages) > 1

    def gradients(inertia, *state):
        out, pull = jax.vjp(
            lambda inertia, *state: programs(model.replace(inertia=inertia))[0](*state), inertia, *state
        )
        return out, pull(state[2])

    truth = quickly(lambda *args: gradients(*args))(model.inertia, *state)
    with compile_for("cuda"):
        found = quickly(lambda *args: gradients(*args))(model.inertia, *state)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(truth), strict=True):
        assert relative(a, b) < 1e-12


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="JAX has found no GPU")
def test_on_a_gpu(robots):
    """Accelerations, their gradients and a rollout are those of the CPU."""
    model = robots["humanoid"]
    for function in programs(model):
        found = jax.jit(lambda *state: function(*state))(*inputs(model))
        with jax.default_device(jax.devices("cpu")[0]), compile_for("cpu"):
            truth = jax.jit(lambda *state: function(*state))(*inputs(model))
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(truth), strict=True):
            assert relative(a, b) < 1e-10


def test_the_platform_must_be_known():
    with pytest.raises(ValueError, match='platform must be "cpu", "gpu".*got \'abacus\''):
        compile_for("abacus")
