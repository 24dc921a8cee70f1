"""Real robots against Pinocchio: a handful always, all of them in the long run."""

import jax
import jax.numpy as jnp
import pytest
from helpers import pinocchio_oracle as oracle

pytest.importorskip("pinocchio")

HANDFUL = {
    "panda_description/urdf/panda.urdf": False,
    "anymal_b_simple_description/robots/anymal.urdf": True,
    "ur_description/urdf/ur5_robot.urdf": False,
    "double_pendulum_description/urdf/double_pendulum_continuous.urdf": False,
    "talos_data/robots/talos_reduced.urdf": True,
}


def check(path, floating_base):
    model, other = oracle.both(path, floating_base)
    if other is None:
        pytest.skip(f"Pinocchio does not load {path.name}")
    worst = oracle.differences(model, other)
    for name, difference in worst.items():
        assert difference <= oracle.TOLERANCES.get(name, oracle.DEFAULT_TOLERANCE), (name, worst)
    expected = {"mass", "first moment", "inertia", "effort", "velocity", "poses f64", "poses f32", "com"}
    assert expected <= set(worst) | ({"effort", "velocity"} if "pendulum" in path.name else set())


def test_the_comparison_can_fail(robot_data):
    model, other = oracle.both(robot_data / "panda_description/urdf/panda.urdf", False)
    for leaf, keys in (
        ("placement", {"poses f64", "poses f32", "com"}),
        ("inertia", {"mass", "first moment", "inertia", "com"}),
        ("lower", {"lower"}),
        ("effort_limit", {"effort"}),
    ):
        for spoilt in (getattr(model, leaf) + 0.1, getattr(model, leaf) * jnp.nan):
            worst = oracle.differences(model.replace(**{leaf: spoilt}), other)
            good = {k for k, d in worst.items() if d <= oracle.TOLERANCES.get(k, oracle.DEFAULT_TOLERANCE)}
            assert good & keys <= ({"effort"} if bool(jnp.isnan(spoilt).any()) else set()), (leaf, worst)


@pytest.mark.parametrize(("path", "floating_base"), HANDFUL.items())
def test_equals_pinocchio(robot_data, path, floating_base):
    check(robot_data / path, floating_base)


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_every_robot_equals_pinocchio(robot_data, part):
    """All URDF files of the package, on a fixed and on a floating base, in ten parts."""
    compared, worst, refused = 0, {}, []
    for path in sorted(robot_data.rglob("*.urdf"))[part::10]:
        for floating_base in (False, True):
            model, other = oracle.both(path, floating_base)
            if other is None:
                refused.append(path.name)
                continue
            found = oracle.differences(model, other, samples=3)
            jax.clear_caches()  # a process cannot hold the compiled code of all robots
            for name, difference in found.items():
                tolerance = oracle.TOLERANCES.get(name, oracle.DEFAULT_TOLERANCE)
                assert difference <= tolerance, (path.name, floating_base, name, found)
                worst[name] = max(worst.get(name, 0.0), difference)
            compared += 1
    print(f"\n{compared} models equal Pinocchio's; it refuses {sorted(set(refused))}; largest differences: {worst}")
    assert compared >= 10
