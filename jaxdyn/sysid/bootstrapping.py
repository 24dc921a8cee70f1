"""How much an identification depends on the recording: refits to resampled pieces of it, all at once."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._compiling import jit
from jaxdyn.sysid import entropic, log_cholesky
from jaxdyn.sysid.compression import least_squares, together
from jaxdyn.sysid.objective import System, least_gamma, start_of
from jaxdyn.sysid.results import Identification


def bootstrap(found: Identification, samples: int = 64, *, seed: int = 0, max_iterations: int = 100) -> jax.Array:
    """Identify again from pieces of the recording drawn with replacement, in one batch by `jax.vmap`.

    The recording is cut into consecutive pieces, so that noise that is correlated over less than a piece keeps its
    correlation. The prior and its weight stay; each refit starts at the prior.

    Args:
        found: what `identify` returned.
        samples: number of refits.
        seed: of the drawing.
        max_iterations: of each refit.

    Returns:
        Parameters, (samples, n), in the order of `found.names`; their spread is a deviation that assumes no law of
        the noise.

    Example:
        >>> import jax, numpy as np, jaxdyn
        >>> from jaxdyn.sysid import bootstrap, identify
        >>> model, rng = jaxdyn.load("double_pendulum"), np.random.default_rng(0)
        >>> q, qd, qdd = rng.normal(size=(3, 100, 2))
        >>> tau = jax.vmap(jaxdyn.inverse_dynamics, in_axes=(None, 0, 0, 0))(model, q, qd, qdd)
        >>> tau = tau + 0.1 * rng.normal(size=tau.shape)
        >>> found = identify(model, q, qd, qdd, tau, friction="none", rotor_inertia=False)
        >>> bootstrap(found, 8).shape
        (8, 22)
    """
    if not isinstance(samples, int) or samples < 1:
        raise ValueError(f"samples must be a positive integer; got {samples!r}")
    blocks = len(found.blocks)
    draws = np.random.default_rng(seed).multinomial(blocks, np.full(blocks, 1 / blocks), size=samples)
    x = _refits(found, jnp.asarray(draws, found.parameters.dtype), found.method, max_iterations)
    return jnp.tile(found.parameters[None], (samples, 1)).at[:, np.array(found.columns, int)].set(x)


@partial(jit, static_argnames=("method", "max_iterations"))
def _refits(found: Identification, draws: jax.Array, method: str, max_iterations: int) -> jax.Array:
    nearest = found.parameters[np.array(found.columns, int)]

    def one(share: jax.Array) -> jax.Array:
        factor = together(found.blocks, share)
        if method == "least_squares":
            return least_squares(factor, nearest)[0]
        system: System = found.system._replace(R=factor[:-1, :-1], c=factor[:-1, -1])
        gamma, begin = least_gamma(system, found.regularization), start_of(system)
        if method == "log_cholesky":
            return log_cholesky.solve(system, gamma, begin, max_iterations=max_iterations).point.vector()
        refit = entropic.solve(system, gamma, begin, max_iterations=max_iterations, accurate=False)
        return refit.point.vector()

    return jax.vmap(one)(draws)
