"""What an identification found, how sure it is, and what the data could tell."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from jaxdyn.model import Model, physical_margins
from jaxdyn.sysid.base import BaseParameters
from jaxdyn.sysid.objective import History, System, einsum
from jaxdyn.sysid.terms import Terms, dof_names, driven, known_torque, stacked_regressor

CONVERGED, WEAKLY_EXCITED, STOPPED, NOT_FINITE = range(4)
STATUS = ("converged", "converged, weakly excited", "iteration limit", "not finite")
"""What the codes mean."""


class CrossValidation(NamedTuple):
    """How well what was learned from one part of the recording explains the rest."""

    regularization: jax.Array
    """(weights,) descending."""
    error: jax.Array
    """(weights,) sum of squared errors on the parts left out, in units of the noise."""
    deviation: jax.Array
    """(weights,) standard error of its excess over the least."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class Identification:
    """The result of `identify`."""

    model: Model
    """The model with the identified inertias, armature, damping and friction."""
    parameters: jax.Array
    """(n,) all parameters, in the order of `names`."""
    covariance: jax.Array
    """(n, n) of the parameters, given noise whose correlation in time is that of the residuals, and the prior."""
    informed: jax.Array
    """(n,) which part of a parameter's variance under the prior the data took away: 1 is all data, 0 all prior."""
    regularization: jax.Array
    """The weight gamma of the prior, in observations."""
    validation: CrossValidation
    """How gamma was chosen; one row of zeros if it was given."""
    code: jax.Array
    """0, 1, 2, 3, see `status`."""
    iterations: jax.Array
    """How many steps were taken."""
    history: History
    """One row per iteration."""
    torque: jax.Array
    """(samples, nv) as the identified parameters predict it."""
    residual: jax.Array
    """(samples, nv) measured minus predicted torque."""
    noise: jax.Array
    """(nv,) standard deviation of each joint's torque that was used to weigh it."""
    system: System
    """The problem that was solved, of the columns `columns`."""
    blocks: jax.Array
    """(blocks, k + 1, k + 1) triangular factors of consecutive pieces of the recording; `bootstrap` reads them."""
    base: BaseParameters | None
    """Base parameters of the model: what any motion could tell. None inside jit."""
    base_of_data: BaseParameters | None
    """Base parameters of this recording. None inside jit."""
    columns: tuple[int, ...] = field(metadata={"static": True})
    """(k,) the parameters that were sought: all but those of bodies without mass."""
    names: tuple[str, ...] = field(metadata={"static": True})
    """(n,) names of the parameters."""
    terms: Terms = field(metadata={"static": True})
    """Which joint terms there are."""
    method: str = field(metadata={"static": True})
    """By which they were found."""
    note: str = field(metadata={"static": True}, default="")
    """What there is to say about the data."""

    @property
    def status(self) -> str:
        """How it went: "converged", "converged, weakly excited", "iteration limit" or "not finite"."""
        return STATUS[int(self.code)]

    @property
    def success(self) -> bool:
        """Whether the parameters are those that were sought."""
        return int(self.code) in (CONVERGED, WEAKLY_EXCITED)

    @property
    def message(self) -> str:
        """The status in a sentence."""
        if int(self.code) == STOPPED:
            return f"stopped after {int(self.iterations)} iterations; try a larger max_iterations, or regularization"
        if int(self.code) == NOT_FINITE:
            return f"nothing was identified, the parameters are the prior's: {self.note}"
        if self.method == "least_squares":
            return "solved by least squares" + (f"; {self.note}" if self.note else "")
        return f"converged in {int(self.iterations)} iterations" + (f"; {self.note}" if self.note else "")

    @property
    def offset(self) -> jax.Array:
        """(nv,) constant torques, for which a model has no place; zero if none were sought."""
        zero = jnp.zeros(self.model.nv, self.parameters.dtype)
        if "offset" not in self.terms.kinds:
            return zero
        return zero.at[driven(self.model)].set(self.parameters[self.terms.place(self.model, "offset")])

    @property
    def deviation(self) -> jax.Array:
        """(n,) standard deviation of the parameters."""
        return jnp.sqrt(jnp.diagonal(self.covariance, axis1=-2, axis2=-1))

    @property
    def rmse(self) -> jax.Array:
        """(nv,) root mean square of the residuals of each joint."""
        return jnp.sqrt((self.residual**2).mean(-2))

    @property
    def margins(self) -> jax.Array:
        """(nbodies,) `physical_margins` of the links: positive is strictly physical."""
        return physical_margins(self.model)

    def interval(self, level: float = 0.95) -> tuple[jax.Array, jax.Array]:
        """Return the ends of each parameter's confidence interval, (n,) each."""
        half = ndtri(jnp.asarray(0.5 + level / 2, self.parameters.dtype)) * self.deviation
        return self.parameters - half, self.parameters + half

    def predict(self, q: Any, qd: Any, qdd: Any) -> jax.Array:
        """Return the torques (samples, nv) of other motions (samples, ...), friction and offsets included."""
        q, qd, qdd = (jnp.asarray(x) for x in (q, qd, qdd))
        A = stacked_regressor(self.model, q, qd, qdd, self.terms)
        known = known_torque(self.model, q, qd, qdd, self.terms)
        return einsum("tjn,n->tj", A, self.parameters) + known

    def base_values(self) -> tuple[jax.Array, jax.Array]:
        """Return the base parameters of the model, (rank,), and their standard deviations."""
        if self.base is None:
            raise ValueError("base parameters are found outside of jit only: call identify there")
        C = self.base.combination
        return C @ self.parameters, jnp.sqrt(jnp.maximum(jnp.diagonal(C @ self.covariance @ C.T), 0))

    def table(self) -> str:
        """Return the iterations as a table."""
        if self.method == "least_squares":
            return self.message
        lines = [f"{'iteration':>9}  {'objective':>13}  {'decrement':>10}  {'step':>6}  {'weight':>9}"]
        for k in range(int(self.iterations)):
            F, gain, step, weight = (float(x[k]) for x in self.history)
            lines.append(f"{k + 1:9d}  {F:13.6g}  {gain:10.2e}  {step:6.3f}  {weight:9.2e}")
        return "\n".join([*lines, self.message])

    def summary(self) -> str:
        """Return what was found, as text: fit per joint, what the data identify, links, joint terms."""
        lines = [f"{self.model.name}: {self.message}"]
        if len(self.validation.error) > 1:
            lines.append(f"the prior weighs {float(self.regularization):.3g} observations, by cross-validation")
        rms = np.sqrt((np.asarray(self.torque + self.residual) ** 2).mean(0))
        lines += ["", f"{'joint':24}  {'torque rms':>10}  {'residual rms':>12}  {'share':>7}"]
        for name, size, miss in zip(dof_names(self.model), rms, np.asarray(self.rmse), strict=True):
            lines.append(f"{name:24}  {size:10.4g}  {miss:12.4g}  {100 * miss / max(size, 1e-300):6.2f}%")
        if self.base is not None and self.base_of_data is not None:
            lines += ["", f"{len(self.names)} parameters, of which torques depend on {self.base.rank} combinations; "
                      f"this motion excites {self.base_of_data.rank}, with condition number "
                      f"{self.base_of_data.condition:.3g}"]  # fmt: skip
        lines += ["", f"{'link':24}  {'mass':>8}  {'deviation':>9}  {'centre of mass':>26}  {'physical margin':>15}"]
        pi, deviation = np.asarray(self.model.inertia), np.asarray(self.deviation)
        for i, (name, margin) in enumerate(zip(self.model.body_names, np.asarray(self.margins), strict=True)):
            centre = " ".join(f"{x:8.4f}" for x in pi[i, 1:4] / (pi[i, 0] or 1))
            lines.append(f"{name:24}  {pi[i, 0]:8.4f}  {deviation[10 * i]:9.2g}  {centre:>26}  {margin:15.3g}")
        for kind in self.terms.kinds:
            part = self.terms.place(self.model, kind)
            values, spread = np.asarray(self.parameters)[part], deviation[part]
            lines += [
                "",
                f"{kind}: " + ", ".join(f"{x:.4g} ± {2 * d:.1g}" for x, d in zip(values, spread, strict=True)),
            ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        if isinstance(self.code, jax.core.Tracer) or np.ndim(self.code):
            return f"Identification({self.model.name!r})"
        return f"Identification({self.model.name!r}: {self.status}, residual rms {np.asarray(self.rmse).round(6)})"
