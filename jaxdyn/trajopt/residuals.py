"""Named residuals: what robots are usually asked to do, with derivatives in closed form.

Every function returns a `Cost` of one term, half the weighted square of the residual in the table of its docstring;
weights are numbers, or one for each component. With `varying=True`, target and weight have a row for every time step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.algorithms import (
    center_of_mass as _center_of_mass,
)
from jaxdyn.algorithms import (
    center_of_mass_jacobian,
    gravity_force,
    inverse_dynamics,
    jacobian,
)
from jaxdyn.algorithms import centroidal_momentum as _centroidal_momentum
from jaxdyn.algorithms import (
    frame_pose as _frame_pose,
)
from jaxdyn.algorithms import (
    frame_velocity as _frame_velocity,
)
from jaxdyn.algorithms.kinematics import frame_in_body, frame_number
from jaxdyn.derivatives import (
    centroidal_momentum_derivatives,
    difference_derivatives,
    frame_velocity_derivatives,
    inverse_dynamics_derivatives,
)
from jaxdyn.model import difference
from jaxdyn.spatial import Mat3, Quaternion, Transform, Vec3
from jaxdyn.trajopt.costs import Cost, Kind, Knot, Term
from jaxdyn.trajopt.first_order import frame_of, jacobian_of
from jaxdyn.trajopt.plant import Plant


def frame_position(frame: str, target: Any, *, weight: Any = 1.0, point: Any = None, varying: bool = False) -> Cost:
    """Bring a frame's origin, or a `point` of it, to a position in the world, (3,): r = p - target, m."""
    return _cost(FramePosition(frame, _hashable(point)), weight, target, varying)


def frame_pose(frame: str, target: Any, *, weight: Any = 1.0, varying: bool = False) -> Cost:
    r"""Bring a frame to a pose (rotation (3, 3), position (3,)).

    :math:`r = [\log(R_{target}^T R);\; p - p_{target}]`, (6,): the rotation that is left, rad, in the axes of the
    target, and the position, m, in the world.
    """
    return _cost(FramePose(frame), weight, target, varying)


def frame_velocity(frame: str, target: Any = None, *, weight: Any = 1.0, varying: bool = False) -> Cost:
    """Give a frame a velocity [angular; linear] in world axes, (6,), by default zero: r = V - target."""
    return _cost(FrameVelocity(frame), weight, _or_zero(target, 6), varying)


def state(target: Any, *, weight: Any = 1.0, varying: bool = False) -> Cost:
    """Bring the state to x = (q, qd), (nx,): r = x - target, in the tangent, (2 nv,)."""
    return _cost(State(), weight, target, varying)


def configuration(target: Any, *, weight: Any = 1.0, varying: bool = False) -> Cost:
    """Bring the robot to a configuration, (nq,): r = q - target, in the tangent, (nv,)."""
    return _cost(Configuration(), weight, target, varying)


def velocity(target: Any = None, *, weight: Any = 1.0, varying: bool = False) -> Cost:
    """Give the joints velocities, (nv,), by default zero: r = qd - target."""
    return _cost(Velocity(), weight, target, varying)


def torque(target: Any = None, *, weight: Any = 1.0, varying: bool = False) -> Cost:
    """Keep the inputs near to a target, (nu,), by default zero: r = u - target. Of functions of one's own too."""
    return _cost(Torque(), weight, target, varying)


def torque_minus_gravity(*, weight: Any = 1.0, varying: bool = False) -> Cost:
    """Keep the inputs near to what holds the robot still: r = u - g(q), at the joints on which they act, (nu,)."""
    return _cost(TorqueMinusGravity(), weight, None, varying)


def center_of_mass(target: Any, *, weight: Any = 1.0, varying: bool = False) -> Cost:
    """Bring the centre of mass to a position in the world, (3,): r = c - target, m."""
    return _cost(CenterOfMass(), weight, target, varying)


def centroidal_momentum(target: Any = None, *, weight: Any = 1.0, varying: bool = False) -> Cost:
    """Give the robot a momentum [angular; linear] about its centre of mass, (6,), by default zero: r = h - target."""
    return _cost(CentroidalMomentum(), weight, _or_zero(target, 6), varying)


def joint_limits(*, margin: Any = 0.0, weight: Any = 1.0) -> Cost:
    """Stay away from the ends of the joints' ranges: r is the way past `lower + margin` and `upper - margin`, (nq,).

    A penalty: it keeps a robot near to its limits, not exactly within.
    """
    return _cost(JointLimits(), weight, jnp.asarray(margin), False)


# ---------------------------------------------------------------------- kinds
@dataclass(frozen=True)
class FramePosition(Kind):
    """The position of a point of a frame."""

    frame: str
    point: tuple[float, ...] | None = None

    def check(self, plant: Plant, term: Term) -> None:
        """Look the frame up, and the size of the target."""
        plant.model.topology.find_frame(self.frame)
        _sized("frame_position", term, (3,))

    def residual(self, at: Knot, target: Any) -> jax.Array:
        """Return p - target."""
        return _pose(at, self.frame, self.point)[1] - target

    def slopes(self, at: Knot, target: Any) -> jax.Array:
        """Return the Jacobian of the point."""
        return _by(at, q=_jacobian(at, self.frame, self.point)[3:])


@dataclass(frozen=True)
class FramePose(Kind):
    """The pose of a frame."""

    frame: str

    def check(self, plant: Plant, term: Term) -> None:
        """Look the frame up, and the sizes of the target."""
        plant.model.topology.find_frame(self.frame)
        try:
            rotation, position = term.target
        except (TypeError, ValueError):
            raise ValueError(
                f"frame_pose: target must be (rotation (3, 3), position (3,)); got {term.target}"
            ) from None
        rows = 1 if term.varying else 0
        if np.shape(rotation)[rows:] != (3, 3) or np.shape(position)[rows:] != (3,):
            shapes = np.shape(rotation), np.shape(position)
            raise ValueError(f"frame_pose: target must be (rotation (3, 3), position (3,)); got shapes {shapes}")

    def residual(self, at: Knot, target: Any) -> jax.Array:
        """Return what is left of the rotation, and of the way."""
        rotation, position = _pose(at, self.frame)
        return jnp.concatenate([_log(target[0].T @ rotation), position - target[1]])

    def slopes(self, at: Knot, target: Any) -> jax.Array:
        """Return the Jacobian of the frame; that of its rotation as the logarithm changes."""
        J, (rotation, _) = _jacobian(at, self.frame), _pose(at, self.frame)
        left = target[0].T @ rotation

        def turned(w: jax.Array) -> jax.Array:
            return _log(left @ Quaternion.exp(Vec3.from_array(w)).to_matrix().to_array())

        by_turning = jax.jacfwd(turned)(jnp.zeros(3, at.x.dtype))  # about the frame's own axes
        return _by(at, q=jnp.concatenate([by_turning @ rotation.T @ J[:3], J[3:]]))


@dataclass(frozen=True)
class FrameVelocity(Kind):
    """The velocity of a frame."""

    frame: str

    def check(self, plant: Plant, term: Term) -> None:
        """Look the frame up, and the size of the target."""
        plant.model.topology.find_frame(self.frame)
        _sized("frame_velocity", term, (6,))

    def residual(self, at: Knot, target: Any) -> jax.Array:
        """Return V - target."""
        return _frame_velocity(at.plant.model, at.q, at.qd, self.frame) - target

    def slopes(self, at: Knot, target: Any) -> jax.Array:
        """Return the derivatives in closed form."""
        by_q, by_qd = frame_velocity_derivatives(at.plant.model, at.q, at.qd, self.frame)
        return _by(at, q=by_q, qd=by_qd)


@dataclass(frozen=True)
class State(Kind):
    """The whole state."""

    def check(self, plant: Plant, term: Term) -> None:
        """Look at the size of the target."""
        _sized("state", term, (plant.nx,), weight=plant.ndx)

    def residual(self, at: Knot, target: Any) -> jax.Array:
        """Return the difference from the target."""
        return at.plant.difference(jnp.asarray(target, at.x.dtype), at.x)

    def coordinates(self, plant: Plant) -> int | None:
        """Return where they begin."""
        return 0 if plant.is_flat else None

    def slopes(self, at: Knot, target: Any) -> jax.Array:
        """Return one, or on rotations the derivative of the logarithm."""
        plant = at.plant
        by_x = jnp.eye(plant.ndx, dtype=at.x.dtype)
        if not plant.is_flat:
            nv = plant.model.nv
            by_x = by_x.at[:nv, :nv].set(_difference_slope(at, jnp.asarray(target, at.x.dtype)[: plant.model.nq]))
        return jnp.concatenate([by_x, jnp.zeros((plant.ndx, plant.nu), at.x.dtype)], axis=1)


@dataclass(frozen=True)
class Configuration(Kind):
    """The configuration."""

    def check(self, plant: Plant, term: Term) -> None:
        """Look at the size of the target."""
        _sized("configuration", term, (plant.model.nq,), weight=plant.model.nv)

    def residual(self, at: Knot, target: Any) -> jax.Array:
        """Return the difference from the target."""
        return difference(at.plant.model, jnp.asarray(target, at.x.dtype), at.q)

    def coordinates(self, plant: Plant) -> int | None:
        """Return where they begin."""
        return 0 if plant.is_flat else None

    def slopes(self, at: Knot, target: Any) -> jax.Array:
        """Return one, or on rotations the derivative of the logarithm."""
        if at.plant.is_flat:
            return _by(at, q=jnp.eye(at.plant.model.nv, dtype=at.x.dtype))
        return _by(at, q=_difference_slope(at, jnp.asarray(target, at.x.dtype)))


@dataclass(frozen=True)
class Velocity(Kind):
    """The joints' velocities."""

    def check(self, plant: Plant, term: Term) -> None:
        """Look at the size of the target."""
        _sized("velocity", term, (plant.model.nv,))

    def residual(self, at: Knot, target: Any) -> jax.Array:
        """Return qd - target."""
        return at.qd if target is None else at.qd - target

    def coordinates(self, plant: Plant) -> int | None:
        """Return where they begin."""
        return plant.model.nv

    def slopes(self, at: Knot, target: Any) -> jax.Array:
        """Return one."""
        return _by(at, qd=jnp.eye(at.plant.model.nv, dtype=at.x.dtype))


@dataclass(frozen=True)
class Torque(Kind):
    """The inputs."""

    of_inputs = True

    def check(self, plant: Plant, term: Term) -> None:
        """Look at the size of the target."""
        _sized("torque", term, (plant.nu,))

    def residual(self, at: Knot, target: Any) -> jax.Array:
        """Return u - target."""
        return at.u if target is None else at.u - target

    def coordinates(self, plant: Plant) -> int | None:
        """Return where they begin."""
        return plant.ndx

    def slopes(self, at: Knot, target: Any) -> jax.Array:
        """Return one."""
        return _by(at, u=jnp.eye(at.plant.nu, dtype=at.x.dtype))


@dataclass(frozen=True)
class TorqueMinusGravity(Kind):
    """The inputs, less what holds the robot still."""

    of_inputs = True

    def check(self, plant: Plant, term: Term) -> None:
        """Look whether there is a robot."""
        _sized("torque_minus_gravity", term, (plant.nu,) if plant.model.nv else (0,))

    def residual(self, at: Knot, target: Any) -> jax.Array:
        """Return u - g(q)."""
        return at.u - _gravity(at)[np.array(at.plant.driven, int)]

    def slopes(self, at: Knot, target: Any) -> jax.Array:
        """Return one, and the derivative of gravity's forces in closed form."""
        if at.known is None:
            still = jnp.zeros_like(at.qd)
            by_q = inverse_dynamics_derivatives(at.plant.model, at.q, still, still)[0]
        else:
            by_q = at.known.gravity_by_q
        return _by(at, q=-by_q[np.array(at.plant.driven, int)], u=jnp.eye(at.plant.nu, dtype=at.x.dtype))


@dataclass(frozen=True)
class CenterOfMass(Kind):
    """The position of the centre of mass."""

    def check(self, plant: Plant, term: Term) -> None:
        """Look at the size of the target."""
        _sized("center_of_mass", term, (3,) if plant.model.nv else (0,))

    def residual(self, at: Knot, target: Any) -> jax.Array:
        """Return c - target."""
        return _center_of_mass(at.plant.model, at.q) - target

    def slopes(self, at: Knot, target: Any) -> jax.Array:
        """Return its Jacobian."""
        return _by(at, q=center_of_mass_jacobian(at.plant.model, at.q))


@dataclass(frozen=True)
class CentroidalMomentum(Kind):
    """The momentum about the centre of mass."""

    def check(self, plant: Plant, term: Term) -> None:
        """Look at the size of the target."""
        _sized("centroidal_momentum", term, (6,) if plant.model.nv else (0,))

    def residual(self, at: Knot, target: Any) -> jax.Array:
        """Return h - target."""
        return _centroidal_momentum(at.plant.model, at.q, at.qd) - target

    def slopes(self, at: Knot, target: Any) -> jax.Array:
        """Return the derivatives in closed form."""
        by_q, by_qd = centroidal_momentum_derivatives(at.plant.model, at.q, at.qd)
        return _by(at, q=by_q, qd=by_qd)


@dataclass(frozen=True)
class JointLimits(Kind):
    """The way past the ends of the joints' ranges."""

    def check(self, plant: Plant, term: Term) -> None:
        """Look whether there is a robot."""
        if np.shape(term.target) not in ((), (plant.model.nq,)):
            raise ValueError(f"joint_limits: margin must be a number or ({plant.model.nq},)")

    def residual(self, at: Knot, target: Any) -> jax.Array:
        """Return the way past them, zero within."""
        model = at.plant.model
        past = lambda end, way: jnp.where(jnp.isfinite(end), jnp.maximum(way + target, 0), 0)
        return past(model.upper, at.q - model.upper) - past(model.lower, model.lower - at.q)


# ---------------------------------------------------------------------- details
def _cost(kind: Kind, weight: Any, target: Any, varying: bool) -> Cost:
    return Cost((Term(_array(weight), _array(target), kind, varying),))


def _array(x: Any) -> Any:
    return np.asarray(x, float) if isinstance(x, list) else x


def _hashable(point: Any) -> tuple[float, ...] | None:
    return None if point is None else tuple(float(x) for x in np.asarray(point).reshape(3))


def _or_zero(target: Any, size: int) -> Any:
    return np.zeros(size) if target is None else target


def _by(at: Knot, q: Any = None, qd: Any = None, u: Any = None) -> jax.Array:
    """Return slopes by (q, qd, u) in one matrix; those not given are zero."""
    parts, rows = (q, qd, u), next(x.shape[0] for x in (q, qd, u) if x is not None)
    ndx, nu = at.plant.ndx, at.plant.nu
    widths = (ndx // 2, ndx - ndx // 2, nu)
    fill = lambda x, width: jnp.zeros((rows, width), at.x.dtype) if x is None else x
    return jnp.concatenate([fill(x, width) for x, width in zip(parts, widths, strict=True)], axis=1)


def _pose(at: Knot, frame: str, point: Any = None) -> tuple[jax.Array, jax.Array]:
    """Return the rotation of a frame and the position of its origin, or of a point of it."""
    if at.known is None:
        return _frame_pose(at.plant.model, at.q, frame, point)
    return frame_of(at.plant.model, at.known, *_numbered(at, frame, point))


def _jacobian(at: Knot, frame: str, point: Any = None) -> jax.Array:
    if at.known is None:
        return jacobian(at.plant.model, at.q, frame, point)
    return jacobian_of(at.plant.model, at.known, *_numbered(at, frame, point))


def _gravity(at: Knot) -> jax.Array:
    if at.known is not None:
        return at.known.gravity
    if at.plant.dense:
        still = jnp.zeros(at.plant.model.nv, at.x.dtype)
        return inverse_dynamics(at.plant.model, at.q, still, still, form="dense")
    return gravity_force(at.plant.model, at.q)


def _numbered(at: Knot, frame: str, point: Any) -> tuple[int, jax.Array, jax.Array]:
    """Return the body of a frame, and the frame's placement in it."""
    body, number, offset = frame_number(at.plant.model, frame, point)
    X = Transform.from_pose(frame_in_body(at.plant.model, number).astype(at.x.dtype))
    return body, X.R.to_array(), X.point(Vec3.from_array(jnp.asarray(offset, at.x.dtype))).to_array()


def _difference_slope(at: Knot, target: jax.Array) -> jax.Array:
    return difference_derivatives(at.plant.model, target, at.q)[1]


def _log(rotation: jax.Array) -> jax.Array:
    return Quaternion.from_matrix(Mat3.from_array(rotation)).log().to_array()


def _sized(name: str, term: Term, shape: tuple[int, ...], weight: int | None = None) -> None:
    """Raise a ValueError unless target and weight have the right shapes; (rows, ...) if they vary."""
    rows = 1 if term.varying else 0
    if term.target is not None and np.shape(term.target)[rows:] != shape:
        raise ValueError(f"{name}: target must have shape {shape}; got {np.shape(term.target)[rows:]}")
    size = shape[0] if weight is None else weight
    if np.shape(term.weight)[rows:] not in ((), (size,)):
        raise ValueError(f"{name}: weight must be a number or have shape ({size},); got {np.shape(term.weight)[rows:]}")
