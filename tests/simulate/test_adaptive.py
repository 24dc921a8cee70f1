"""Steps of adaptive length, by diffrax."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.simulate import adaptive_rollout, step


def test_agrees_with_small_steps(floating, state):
    pytest.importorskip("diffrax")
    q, qd, tau = state
    found = adaptive_rollout(floating, q, qd, tau, t=[0.0, 0.1, 0.2], rtol=1e-10, atol=1e-10)
    for _ in range(64):
        q, qd = step(floating, q, qd, tau, dt=0.2 / 64, integrator="rk4")
    assert np.abs(jaxdyn.difference(floating, q, found.q[-1])).max() < 1e-7
    assert np.abs(found.qd[-1] - qd).max() < 1e-7
    assert found.extras["steps"] > 1


def test_says_what_is_missing(chain, monkeypatch):
    monkeypatch.setitem(sys.modules, "diffrax", None)
    with pytest.raises(ImportError, match=r"pip install jaxdyn\[ode\]"):
        adaptive_rollout(chain, jnp.zeros(2), jnp.zeros(2), jnp.zeros(2), t=[0.0, 1.0])


@pytest.mark.parametrize("t", [[0.0, 0.2, 0.1], [0.1, 0.1], [0.0, np.nan]])
def test_times_must_increase(chain, t):
    pytest.importorskip("diffrax")
    with pytest.raises(ValueError, match="t must be finite and increasing"):
        adaptive_rollout(chain, np.zeros(2), np.zeros(2), np.zeros(2), t=t)


def test_answers_of_a_policy_are_checked(chain):
    pytest.importorskip("diffrax")
    with pytest.raises(ValueError, match="what the policy returns"):
        adaptive_rollout(chain, np.zeros(2), np.zeros(2), lambda t, q, qd, params: qd[:1], t=[0.0, 0.1])
