"""The spatial operators of a robot at a configuration, in the letters of the papers (001)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxdyn._checks import vector
from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.kinematics import frame_number
from jaxdyn.algorithms.velocities import point_in_body
from jaxdyn.model import Model
from jaxdyn.operators import expressions
from jaxdyn.operators.expressions import Atom, Expression
from jaxdyn.operators.operator import Operator, Source
from jaxdyn.operators.steps import Frames


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SpatialOperators:
    """The spatial operators of a robot at a configuration, in the letters of the papers.

    Joint space is (nv,), in the model's order. Body space is (6 nbodies,), [angular; linear] of each body about its
    own origin, in world axes. The space of frames is (6 frames,), about their points, in world axes.
    """

    source: Source

    def _atom(self, name: str) -> Operator:
        return Operator((self.source,), (), (), Expression.of(Atom(name)))

    @property
    def I(self) -> Operator:
        """The identity, of any space."""
        return Operator((self.source,), (), (), Expression.of())

    @property
    def H(self) -> Operator:
        """Body to joint: the joints' share of spatial forces; H.T the velocities across joints."""
        return self._atom("H")

    @property
    def phi(self) -> Operator:
        """Body to body, (I - E_phi)^-1: sums of forces inward; phi.T sums of velocities outward."""
        return self._atom("phi")

    @property
    def psi(self) -> Operator:
        """Body to body, (I - E_psi)^-1: as phi, through joints that give way."""
        return self._atom("psi")

    @property
    def E_phi(self) -> Operator:
        """Body to body: each body's force brought to its parent."""
        return self._atom("E_phi")

    @property
    def E_psi(self) -> Operator:
        """Body to body: E_phi tau_bar."""
        return self._atom("E_psi")

    @property
    def M(self) -> Operator:
        """Body to body: the bodies' spatial inertias."""
        return self._atom("M")

    @property
    def P(self) -> Operator:
        """Body to body: articulated inertias, P = M + E_psi P E_phi*."""
        return self._atom("P")

    @property
    def P_plus(self) -> Operator:
        """Body to body: articulated inertias beyond the joint, tau_bar P."""
        return self._atom("P_plus")

    @property
    def D(self) -> Operator:
        """Joint to joint: H P H* + A, a block for each joint."""
        return self._atom("D")

    @property
    def L(self) -> Operator:
        """Joint to joint: the lower Cholesky factors of D."""
        return self._atom("L")

    @property
    def G(self) -> Operator:
        """Joint to body: the gain P H* D^-1."""
        return self._atom("G")

    @property
    def K(self) -> Operator:
        """Joint to body: E_phi G."""
        return self._atom("K")

    @property
    def tau_bar(self) -> Operator:
        """Body to body: I - G H, what a joint that gives way transmits."""
        return self._atom("tau_bar")

    @property
    def A(self) -> Operator:
        """Joint to joint: armature, the noise of the filter's measurements."""
        return self._atom("A")

    @property
    def m(self) -> Operator:
        """Joint to joint: the innovations factor (I + H phi K) L, with m m* the mass matrix."""
        return self._atom("m")

    @property
    def mass_matrix(self) -> Operator:
        """Joint to joint: H phi M phi* H* + A."""
        return Operator((self.source,), (), (), expressions.mass_matrix())

    def B(self, *frames: str, points: Any = None) -> Operator:
        """Frames to body: forces at points of frames as forces on bodies; B.T picks the frames' velocities.

        Args:
            frames: names of bodies or frames.
            points: a point in each frame, (len(frames), 3); their origins if not given.
        """
        model = self.source.model
        if not frames:
            raise ValueError("B needs the name of at least one frame")
        given = [None] * len(frames) if points is None else list(points)
        if len(given) != len(frames):
            raise ValueError(f"points must be one per frame, {len(frames)}; got {len(given)}")
        numbers = [frame_number(model, name, point) for name, point in zip(frames, given, strict=True)]
        bodies = jnp.array([body for body, _, _ in numbers], jnp.int32)
        at = jnp.stack([point_in_body(model, number, point) for _, number, point in numbers])
        return Operator((self.source,), (), (Frames(bodies, at),), Expression.of(Atom("B")))

    def J(self, *frames: str, points: Any = None) -> Operator:
        """Joint to frames: the Jacobian B* phi* H* (001 (1)); arguments as of `B`.

        All frames' velocities are in world axes, so that J("left") - J("right") gives that of one relative to another.
        """
        return self.B(*frames, points=points).T @ self.phi.T @ self.H.T


def spatial_operators(model: Model, q: Any) -> SpatialOperators:
    r"""Return the spatial operators of a robot at a configuration.

    An expression in them runs as recursions over the bodies: phi and psi as one sweep inward, their transposes as
    one outward, all others body by body. Operators are pytrees, for use inside `jit`, `vmap` and `grad`.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).

    Returns:
        H, phi, psi, E_phi, E_psi, M, P, D, G, K, tau_bar, I and A, L, m, mass_matrix, B(frame), J(frame).

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> model = jaxdyn.load("arm7")
        >>> s = jaxdyn.operators.spatial_operators(model, jaxdyn.neutral(model))
        >>> M = s.H @ s.phi @ s.M @ s.phi.T @ s.H.T
        >>> M
        H @ phi @ M @ phi.T @ H.T
        >>> (M @ jnp.ones(7)).shape  # forces for an acceleration, no matrix formed
        (7,)
        >>> (s.I - s.H @ s.psi @ s.K).inv()
        I + H @ phi @ K
    """
    arguments.require_model(model)
    arguments.refuse_mimic(model, "the spatial operator algebra")
    q = jnp.asarray(q)
    model.require_single(concrete=False)
    q = vector("q", q, model.nq, "coordinate", model.dtype)
    return SpatialOperators(Source(model, q.astype(jnp.result_type(q, model.dtype))))
