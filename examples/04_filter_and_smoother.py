"""Forces as states, torques as measurements: the dynamics of an arm as a Kalman filter and smoother."""

import jax
import jax.numpy as jnp

import jaxdyn
from jaxdyn import estimation

jax.config.update("jax_enable_x64", True)


def row(numbers):
    return " ".join(f"{float(x):+8.3f}" for x in numbers)


# Across a joint the filter knows a force from the torques outboard, and how well: the covariance is an inertia.
model = jaxdyn.load("arm7")
q = jaxdyn.random_configuration(model, jax.random.key(2))
qd, tau = jax.random.normal(jax.random.key(1), (2, model.nv))
smoothed = estimation.smooth(model, q, qd, tau)
z, z_plus, P, P_plus, D, G, e, e_plus = smoothed.filtered
H = jnp.stack([jaxdyn.operators.spatial_operators(model, q).H.as_matrix()[k, 6 * k : 6 * k + 6] for k in range(7)])
print("An arm: the filter goes from tip to base, the smoother back")
print(f"  innovations e = tau - H z, N m          {row(e)}")
print(f"  their covariance D = H P H*, kg m^2     {row(D[:, 0])}")
print(f"  residuals D^-1 e, inboard locked 1/s^2  {row(e_plus)}")
print(f"  smoothed, all joints free 1/s^2         {row(smoothed.qdd)}")

# One joint of the filter, as the paper writes it: gain, innovation, estimate and covariance (000 (38)-(43)).
k = 3
assert jnp.allclose(D[k], H[k] @ P[k] @ H[k] + model.armature[k])
assert jnp.allclose(G[k], P[k] @ H[k] / D[k])
assert jnp.allclose(e[k], tau[k] - H[k] @ z[k])
assert jnp.allclose(P_plus[k], P[k] - jnp.outer(G[k], H[k] @ P[k]))
# And of the smoother: costates are accelerations, lam; less the joint's own part, the gain takes them off (46)-(47).
lam, qdd = smoothed.lam_minus, smoothed.qdd
assert jnp.allclose(qdd[k], e_plus[k] - G[k] @ (lam[k] - H[k] * qdd[k]))
forward = jaxdyn.forward_dynamics(model, q, qd, tau)
print(f"  forward dynamics differs by {jnp.abs(smoothed.qdd - forward).max():.0e} 1/s^2")

keys = jax.random.split(jax.random.key(0), 10_000)
draws = jax.vmap(lambda key: estimation.sample(model, q, key, of="inverse"))(keys)
M = jaxdyn.mass_matrix(model, q)
white = jnp.linalg.cholesky(M).T @ draws.T
error = jnp.abs(white @ white.T / len(keys) - jnp.eye(7)).max()
print(f"  {len(keys)} velocities drawn with covariance M^-1 are, over its root, white up to {error:.3f}")
