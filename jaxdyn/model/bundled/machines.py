"""Pendulums and machines."""

from __future__ import annotations

from dataclasses import replace

from jaxdyn.model.bundled.table import BLUE, DARK, LIGHT, ORANGE, ORIGIN, STEEL, Drive, Frame, Row, X, Y, Z, build
from jaxdyn.model.model import Model
from jaxdyn.model.shapes import Solid


def planar_chain(
    n: int = 4, *, length: float = 1.0, mass: float = 1.0, radius: float = 0.02, name: str = "planar_chain"
) -> Model:
    """Return n equal links in a vertical plane (000 section XII).

    The links are uniform rods, cylinders of a small radius so that their inertia is that of a real body.
    All joints turn about y; at q = 0 the chain hangs along -z. Nothing damps it. With l the length and
    theta_k = q_1 + ... + q_k the frame "tip" is at -l sum_k (sin theta_k, 0, cos theta_k).

    Args:
        n: number of links, at least one.
        length: of each link.
        mass: of each link.
        radius: of each link.
        name: of the model.

    Example:
        >>> from jaxdyn.model.bundled import planar_chain
        >>> planar_chain(10).nv
        10
    """
    if n < 1:
        raise ValueError(f"n must be at least one link; got {n}")
    end = (0.0, 0.0, -length)
    rows = [
        Row(
            f"link{k + 1}", f"link{k}" if k else None, f"joint{k + 1}", Y, end if k else ORIGIN,
            (
                Solid.cylinder(mass, radius, ORIGIN, end, (ORANGE, BLUE)[k % 2]),
                Solid.sphere(0.0, 1.8 * radius, ORIGIN, DARK),
            ),
        )
        for k in range(n)
    ]  # fmt: skip
    return build(name, rows, [Frame("tip", rows[-1].body, end)])


def pendulum() -> Model:
    """Return one rod of 1 m and 1 kg that turns about y, hanging along -z at q = 0; see `planar_chain`."""
    return planar_chain(1, name="pendulum")


def double_pendulum() -> Model:
    """Return two rods of 1 m and 1 kg that turn about y, hanging along -z at q = 0; see `planar_chain`."""
    return planar_chain(2, name="double_pendulum")


def cartpole() -> Model:
    """Return a cart on a rail along x ("slider") with a pole on a hinge about y ("hinge").

    At q = 0 the pole stands upright; it falls forward, towards +x, as its angle grows. Only the cart has a
    motor. The frame "tip" is at the end of the pole.
    """
    cart = Solid.box(1.0, (0.30, 0.20, 0.12), colour=BLUE)
    pole = Solid.cylinder(0.2, 0.015, ORIGIN, Z, ORANGE)
    rail = Solid.cylinder(0.0, 0.02, (-2.6, 0, 0), (2.6, 0, 0), STEEL)
    rows = [
        Row("cart", None, "slider", X, ORIGIN, (cart,), (-2.4, 2.4), Drive(20, 5, damping=0.1), "prismatic"),
        Row("pole", "cart", "hinge", Y, ORIGIN, (pole,), drive=Drive(damping=0.002)),
    ]
    return build("cartpole", rows, [Frame("rail", None, ORIGIN, (rail,)), Frame("tip", "pole", Z)])


def gantry() -> Model:
    """Return a gantry of three prismatic axes, x, y and z, above a floor of 3 m by 2 m.

    At q = 0 the frame "tool" is 0.7 m above the middle of the floor.
    """
    stand = tuple(
        solid
        for y in (-1.0, 1.0)
        for solid in (
            Solid.box(0.0, (3.2, 0.12, 0.12), (0, y, 1.44), STEEL),
            *(Solid.box(0.0, (0.12, 0.12, 1.38), (x, y, 0.69), STEEL) for x in (-1.5, 1.5)),
        )
    )
    bridge = (Solid.box(50.0, (0.18, 2.1, 0.18), (0.22, 0, 0.09), ORANGE),)
    trolley = (Solid.box(18.0, (0.26, 0.26, 0.26), (0, 0, 0.09), BLUE),)
    ram = (
        Solid.box(9.0, (0.08, 0.08, 1.1), (0, 0, -0.10), LIGHT),
        Solid.cylinder(3.0, 0.05, (0, 0, -0.80), (0, 0, -0.65), DARK),
    )
    rows = [
        Row("bridge", None, "x_axis", X, (0, 0, 1.5), bridge, (-1.2, 1.2), Drive(900, 2.0, 8.0, 120, 40)),
        Row("trolley", "bridge", "y_axis", Y, ORIGIN, trolley, (-0.8, 0.8), Drive(500, 2.0, 4.0, 60, 20)),
        Row("ram", "trolley", "z_axis", Z, ORIGIN, ram, (-0.6, 0.3), Drive(400, 1.0, 3.0, 60, 20)),
    ]
    rows = [replace(row, joint="prismatic") for row in rows]
    return build("gantry", rows, [Frame("base", None, ORIGIN, stand), Frame("tool", "ram", (0, 0, -0.8))])
