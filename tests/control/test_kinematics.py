"""Inverse kinematics: solutions, nearest points, limits, derivatives, batches."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import long, quickly, relative

import jaxdyn
from jaxdyn import control
from jaxdyn.control import Status
from jaxdyn.model.random_models import random_tree


@pytest.fixture(scope="module")
def planar():
    """Two links of 1 m, which turn about y, between -2.5 and 2.5 rad; at zero they point up."""
    builder = jaxdyn.ModelBuilder("planar")
    link = {"axis": (0, 1, 0), "mass": 1.0, "inertia": (0.1, 0.1, 0.1), "lower": -2.5, "upper": 2.5}
    builder.add_body("upper", **link)
    builder.add_body("lower", "upper", xyz=(0, 0, 1), **link)
    return builder.add_frame("tip", "lower", xyz=(0, 0, 1)).build()


@pytest.fixture(scope="module")
def reach(planar):
    """Position goals of the planar arm, in batches of 8."""
    one = lambda target, q: control.inverse_kinematics(planar, control.position_goal("tip", target), q)
    return quickly(jax.vmap(one))


def test_targets_in_and_out_of_reach(planar, reach):
    """In reach, the closed form: an elbow of acos(d^2 / 2 - 1). Out of it, the nearest point, and a status."""
    targets = np.array(
        [[1.0, 0, 1], [0.5, 0, 1.2], [-1, 0, 0.5], [0, 0, 1.5], [3, 0, 0], [0, 0, 5], [1, 0.5, 1], [np.nan, 0, 0]]
    )
    found = reach(targets, np.tile([0.3, 0.4], (8, 1)))
    assert found.status.tolist() == [Status.SOLVED] * 4 + [Status.NEAREST] * 3 + [Status.NOT_FINITE]
    elbow = np.arccos((targets[:4] ** 2).sum(1) / 2 - 1)
    assert np.abs(np.abs(found.q[:4, 1]) - elbow).max() < 1e-6
    assert found.error[:4].max() < 1e-8
    tips = np.asarray(jax.vmap(lambda q: jaxdyn.frame_pose(planar, q, "tip").position)(found.q))
    nearest = np.array([[2.0, 0, 0], [0, 0, 2], [1, 0, 1]])
    assert np.abs(tips[4:7] - nearest).max() < 1e-6
    assert np.isfinite(found.q).all()
    assert found.error[7] == np.inf


def test_straight_and_singular_starts(reach):
    """From a straight arm no joint moves the tip along it: it gets away, if that helps."""
    targets = np.array([[0.0, 0, 1.2], [0, 0, 2], [0, 0, 3]] + [[0.0, 0, 1]] * 5)
    found = reach(targets, np.zeros((8, 2)))
    assert found.status.tolist() == [Status.SOLVED, Status.SOLVED, Status.NEAREST] + [Status.SOLVED] * 5


def test_limits_are_kept(planar):
    """The nearest point within limits has a gradient that only pushes against them."""
    narrow = planar.replace(lower=jnp.array([-0.2, 0.1]), upper=jnp.array([0.4, 0.9]))
    keys = jax.random.split(jax.random.key(0), 8)
    targets = np.array(
        [[1.5, 0, 0.4], [-1, 0, 1], [0.2, 0, 0.4], [0, 0, -1], [0.6, 0, 1.8], [2, 0, 2], [1, 0, 1], [-2, 0, 0]]
    )
    starts = jax.vmap(partial(jaxdyn.random_configuration, narrow))(keys)
    solve = lambda target, q: control.inverse_kinematics(narrow, control.position_goal("tip", target), q)
    found = quickly(jax.vmap(solve))(targets, starts)
    q, low, high = found.q, np.asarray(narrow.lower), np.asarray(narrow.upper)
    assert ((q >= low) & (q <= high)).all()
    assert (found.status <= Status.NEAREST).all()
    assert (found.status == Status.NEAREST).sum() >= 5
    J, p = jax.vmap(lambda q: (jaxdyn.jacobian(narrow, q, "tip")[3:], jaxdyn.frame_pose(narrow, q, "tip").position))(q)
    slope = np.einsum("bij,bi->bj", J, np.asarray(p) - targets)
    pushes_out = ((q == low) & (slope >= 0)) | ((q == high) & (slope <= 0))
    assert np.abs(np.where(pushes_out, 0, slope)).max() < 1e-5


def test_derivatives_of_solutions(planar):
    """dq/dtarget = J^-1 where the target is reached, and differences of solutions where it is not; also by links."""
    start = jnp.array([0.3, 0.9])
    solve = lambda target, model: control.inverse_kinematics(model, control.position_goal("tip", target), start).q
    slopes = quickly(lambda target: (solve(target, planar), jax.jacrev(solve)(target, planar)))
    target = np.array([1.0, 0, 1.2])
    q, by_target = slopes(target)
    J = np.asarray(jaxdyn.jacobian(planar, q, "tip"))[3:]
    assert relative(J @ by_target, np.diag([1.0, 0, 1])) < 1e-8
    far = np.array([3.0, 0.0, 4.0])  # q1 = atan2(x, z), straight
    assert relative(slopes(far)[1], np.array([[4.0, 0, -3], [0, 0, 0]]) / 25) < 1e-5
    longer = lambda x: planar.replace(placement=planar.placement.at[1, 6].add(x))
    by_length = quickly(jax.jacfwd(lambda x: solve(target, longer(x))))(0.0)
    h = 1e-4
    by_difference = (solve(target, longer(h)) - solve(target, longer(-h))) / (2 * h)
    assert relative(by_length, by_difference) < 1e-6


@pytest.mark.parametrize("kind", [long("floating base"), long("all joint types")])
def test_several_goals_on_all_joint_types(kind):
    """A pose, an axis and a position of three frames, all reached, for a batch of targets with two starts each."""
    joints = (
        ("revolute", "spherical")
        if kind == "floating base"
        else ("planar", "universal", "helical", "cylindrical", "spherical")
    )
    model = random_tree(5, seed=2, joints=joints, floating_base=True)
    names = model.body_names[-1], model.body_names[2], "tip"
    draw = jax.vmap(partial(jaxdyn.random_configuration, model))
    there = draw(jax.random.split(jax.random.key(0), 6))
    starts = draw(jax.random.split(jax.random.key(1), 4))

    def solve(q):
        goals = (
            control.pose_goal(names[0], jaxdyn.frame_pose(model, q, names[0])),
            control.axis_goal(names[1], [1, 0, 0], jaxdyn.frame_pose(model, q, names[1]).rotation[:, 0]),
            control.position_goal(
                names[2], jaxdyn.frame_pose(model, q, names[2], [0.1, 0, 0]).position, point=[0.1, 0, 0]
            ),
        )
        found = control.inverse_kinematics(model, goals, starts)
        gap = jaxdyn.frame_pose(model, found.q, names[0]), jaxdyn.frame_pose(model, q, names[0])
        return found, gap

    found, (reached, wanted) = quickly(jax.vmap(solve))(there)
    assert (found.status == Status.SOLVED).all()
    assert np.abs(reached.position - wanted.position).max() < 1e-7
    assert np.abs(reached.rotation - wanted.rotation).max() < 1e-7


@pytest.mark.long
def test_a_thousand_poses_of_an_arm():
    """Nearly all random poses of a seven-joint arm are found from 16 starts, those of a batch as one by one."""
    model = jaxdyn.load("arm7")
    draw = jax.vmap(partial(jaxdyn.random_configuration, model))
    targets = jax.vmap(lambda q: jaxdyn.frame_pose(model, q, "tool"))(draw(jax.random.split(jax.random.key(0), 1024)))
    starts = draw(jax.random.split(jax.random.key(1), 16))
    solve = lambda target: control.inverse_kinematics(model, control.pose_goal("tool", target), starts)
    found = quickly(jax.vmap(solve))(targets)
    assert (found.status == Status.SOLVED).mean() > 0.99
    tools = jax.vmap(lambda q: jaxdyn.frame_pose(model, q, "tool").position)(found.q)
    gaps = np.linalg.norm(tools - targets.position, axis=1)[found.status == Status.SOLVED]
    assert gaps.max() < 2e-8
    alone = quickly(solve)(jax.tree.map(lambda x: x[0], targets))
    assert alone.status == found.status[0]


def test_what_is_refused(planar):
    x = jnp.zeros(2)
    goal = control.position_goal("tip", [1, 0, 1])
    with pytest.raises(ValueError, match=r"no body or frame named 'tipp'.*did you mean 'tip'"):
        control.inverse_kinematics(planar, control.position_goal("tipp", [1, 0, 1]), x)
    with pytest.raises(ValueError, match=r"target must have shape \(3,\)"):
        control.position_goal("tip", [1, 0])
    with pytest.raises(ValueError, match="direction must not be zero"):
        control.axis_goal("tip", [0, 0, 1], [0, 0, 0])
    with pytest.raises(ValueError, match=r"q must have shape \(2,\), or \(starts, 2\); got \(3,\)"):
        control.inverse_kinematics(planar, goal, jnp.zeros(3))
    with pytest.raises(TypeError, match="goals must be one or several goals"):
        control.inverse_kinematics(planar, [], x)
    with pytest.raises(ValueError, match="tolerance must be a positive number"):
        control.inverse_kinematics(planar, goal, x, tolerance=0.0)
    with pytest.raises(ValueError, match="iterations must be a non-negative integer"):
        control.inverse_kinematics(planar, goal, x, iterations=-1)


def test_the_course_of_a_search_is_returned_and_printed(capsys):
    """Errors of one start fall to the one that is returned; the same numbers in a table, in batches one for each."""
    arm = jaxdyn.load("double_pendulum")
    target = jaxdyn.frame_pose(arm, jnp.full(arm.nq, 0.4), arm.frame_names[-1]).position
    goal = lambda p: control.position_goal(arm.frame_names[-1], p)
    solve = lambda p, **options: control.inverse_kinematics(arm, goal(p), jnp.zeros(arm.nq), iterations=30, **options)
    assert solve(target).history == {}
    found = solve(target, history=True, verbose=True)
    jax.effects_barrier()
    steps = int(found.iterations)
    assert set(found.history) == {"error", "cost", "damping"}
    errors = np.asarray(found.history["error"])
    assert errors.shape == (30,)
    assert (np.diff(errors[1:steps]) <= 0).mean() > 0.7
    assert errors[steps - 1] == found.error
    assert not errors[steps:].any()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["step", "error", "cost", "damping"]
    assert len(lines) == 1 + steps
    many = jax.vmap(lambda p: solve(p, history=True))(jnp.tile(target, (3, 1)))
    np.testing.assert_allclose(many.history["error"], np.broadcast_to(errors, (3, 30)), rtol=1e-6, atol=1e-9)
