"""Make docs/images/viewer.png: `python tests/viz/picture.py`, where there are Chromium and Pillow."""

import io
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
from PIL import Image

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from helpers.chromium import Chromium  # noqa: E402

import jaxdyn  # noqa: E402
from jaxdyn.viz import export_html  # noqa: E402


def reaching(model, q, goal, seconds=3.0, dt=0.002):
    """An arm that goes from rest at q to a goal, as springs, dampers and the weight of its links let it."""
    stiffness = jnp.array([60.0, 60.0, 30.0, 30.0, 6.0, 6.0, 2.0])

    def step(state, _):
        q, qd = state
        tau = jaxdyn.gravity_force(model, q) + stiffness * (goal - q) - 0.35 * stiffness * qd
        qd = qd + dt * jaxdyn.forward_dynamics(model, q, qd, tau)
        return (q + dt * qd, qd), state

    return jax.lax.scan(step, (q, jnp.zeros(model.nv)), length=int(seconds / dt) + 1)[1]


def main():
    model = jaxdyn.load("arm7")
    q0 = jnp.array([-0.6, 0.1, 0.0, -0.4, 0.0, -0.4, 0.0])
    goal = jnp.array([1.0, 0.7, 0.3, 1.0, 0.4, 0.7, 0.5])
    goals = goal + jnp.array([0.0, -0.7, 0.5, -1.4])[:, None] * jnp.array([1.0, 0.4, 0.3, -0.2, 0.5, 0.6, 0.0])
    q, qd = jax.jit(jax.vmap(lambda goal: reaching(model, q0, goal)))(goals)
    with tempfile.TemporaryDirectory() as folder, Chromium(folder) as browser:
        page = export_html(
            model, {"q": q, "qd": qd}, Path(folder) / "arm7.html", dt=0.002, title="Four reaches of an arm"
        )
        browser.resize(920, 640)
        browser.open(page, "?frame=42&com=1&zoom=1.25")
        picture = Image.open(io.BytesIO(browser.screenshot())).convert("RGB")
    # Every fourth shade: a third of the size, and no eye sees it.
    picture.point(lambda shade: min(255, 4 * round(shade / 4))).save(ROOT / "docs/images/viewer.png", optimize=True)


if __name__ == "__main__":
    main()
