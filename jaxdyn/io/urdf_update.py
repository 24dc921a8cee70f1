"""Write a model's inertias, damping and friction into the URDF file that it came from, and nothing else."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import numpy as np

from jaxdyn._checks import ModelError, ModelWarning
from jaxdyn.io.urdf import parse_urdf
from jaxdyn.io.xml import read_bytes
from jaxdyn.model import Model, from_pseudo_inertia, lock_joints, pseudo_inertia
from jaxdyn.spatial import Quaternion, RigidInertia, Sym3, Vec3

MOMENTS = ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
UNCHANGED = 1e-12


def update_urdf(source: str | Path, model: Model, path: str | Path | None = None) -> str:
    r"""Write identified inertias, damping and friction into a URDF file; all else stays as it is.

    Comments, visuals, limits and the order of everything are kept. Where fixed joints merge several links into one
    body, the file still has them apart: with U and V the triangular factors of the body's pseudo-inertia before and
    after, all its links are deformed by the same affine map, :math:`P \to V U^{-1} P\, U^{-T} V^T`, so that their sum
    is the new body's and each of them stays physical. Joints that the model has not, because they were locked, are
    left alone, and the links that they carry change with the body that they were locked to.

    Args:
        source: the URDF file that the model was loaded from.
        model: a model of the same bodies (or with some joints locked), with concrete leaves.
        path: where to write the new text, if anywhere.

    Returns:
        The text. The format has no place for armature: if the model has any, a `ModelWarning` says so.

    Raises:
        ModelError: if the file has not the model's joints.
    """
    model.require_single()
    data = read_bytes(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        before = _reduced(
            parse_urdf(data, source=str(source), floating_base="root_joint" in model.joint_names), model, source
        )
    text = data.decode("utf-8-sig")
    start = re.search(r"<robot[\s>]", text)
    prolog = text[: start.start()] if start else ""
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    robot = ElementTree.fromstring(text[len(prolog) :], parser)
    links = {link.get("name", ""): link for link in robot.iter("link") if link.get("name")}
    old, new = (np.asarray(m.inertia, np.float64) for m in (before, model))
    places = _places(before)
    for i, name in enumerate(before.body_names):
        if np.abs(new[i] - old[i]).max() > UNCHANGED * np.abs(old[i]).max():
            _change_body(links, [p for p in places if p[1] == i], old[i], new[i], name)
    for joint in robot.iter("joint"):
        if joint.get("name") in model.joint_names:
            _change_joint(joint, before, model, joint.get("name", ""))
    if np.any(np.asarray(model.armature)):
        warnings.warn(
            "update_urdf: the format has no place for armature; jaxdyn.save keeps it", ModelWarning, stacklevel=2
        )
    written = prolog + ElementTree.tostring(robot, encoding="unicode") + "\n"
    if path is not None:
        Path(path).write_text(written, encoding="utf-8")
    return written


def _reduced(whole: Model, model: Model, source: Any) -> Model:
    """Return the file's model with those joints locked that the given one has not, where they are not yet."""
    missing = [name for name in model.joint_names if name not in whole.joint_names]
    if missing:
        raise ModelError(f"the file has no joint {missing[0]!r}, which the model has", source=str(source))
    extra = [name for name in whole.joint_names if name not in model.joint_names]
    followers = {whole.joint_names[i] for i, leader in enumerate(whole.topology.followed) if leader >= 0}
    where = {name: _locked_at(whole, model, name) for name in extra if name not in followers}
    reduced = lock_joints(whole, where) if where else whole
    poses = [dict(zip(m.frame_names, np.asarray(m.frame_placement, np.float64), strict=True)) for m in (reduced, model)]
    for name in poses[0].keys() & poses[1].keys():
        if np.abs(poses[0][name] - poses[1][name]).max() > 1e-5:
            raise ModelError(
                f"the frame {name!r} is elsewhere in the model: it is not of this file", source=str(source)
            )
    return reduced


def _locked_at(whole: Model, model: Model, joint: str) -> np.ndarray:
    """Return the position at which a joint was locked: of those with one coordinate, from its body's frame."""
    i = whole.joint_names.index(joint)
    part = whole.q_slice(joint)
    frame = whole.body_names[i]
    if part.stop - part.start != 1 or frame not in model.frame_names:
        return np.asarray(whole.rest)[part]
    zero = lock_joints(whole, {joint: 0.0}).frame_placement
    one = lock_joints(whole, {joint: 1e-3}).frame_placement
    k = lock_joints(whole, {joint: 0.0}).frame_names.index(frame)
    there = np.asarray(model.frame_placement, np.float64)[model.frame_names.index(frame)]
    zero, one = np.asarray(zero, np.float64)[k], np.asarray(one, np.float64)[k]
    if whole.joint_types[i] == "prismatic":
        direction = (one[4:] - zero[4:]) / 1e-3
        return np.array([(there[4:] - zero[4:]) @ direction])
    q0, q1 = Quaternion.from_array(zero[:4]), Quaternion.from_array(there[:4])
    turn = np.asarray((q0.conjugate() @ q1).to_array(), np.float64)
    axis = np.asarray(whole.axis[i], np.float64)
    return np.array([2 * np.arctan2(turn[1:] @ axis / np.linalg.norm(axis), turn[0])])


def _places(model: Model) -> list[tuple[str, int, np.ndarray]]:
    """Return name, body and pose (7,) in the body's frame of all links."""
    t = model.topology
    own = [(name, i, np.array([1.0, 0, 0, 0, 0, 0, 0])) for i, name in enumerate(t.body_names)]
    poses = np.asarray(model.frame_placement, np.float64)
    return own + [(n, b, pose) for n, b, pose in zip(t.frame_names, t.frame_parents, poses, strict=True) if b >= 0]


def _change_body(links: dict[str, Element], places: Any, old: np.ndarray, new: np.ndarray, body: str) -> None:
    """Deform all links of a body by the affine map that takes its old inertia to the new one."""
    present = [
        (links[name], pose) for name, _, pose in places if name in links and links[name].find("inertial") is not None
    ]
    U, V = _factor(old), _factor(new)
    if not present or U is None or V is None:  # nothing to deform, or not physical: one link takes it all
        own = links.get(body)
        if own is not None:
            _write_inertial(own, new)
        for link, _ in present:
            if link is not own:
                link.remove(link.find("inertial"))  # type: ignore[arg-type]
        return
    T = V @ np.linalg.inv(U)
    for link, pose in present:
        X = np.eye(4)
        X[:3, :3] = Quaternion.from_array(pose[:4]).to_matrix().to_array()
        X[:3, 3] = pose[4:]
        map_ = np.linalg.inv(X) @ T @ X
        P = map_ @ np.asarray(pseudo_inertia(_read_inertial(link)), np.float64) @ map_.T
        _write_inertial(link, np.asarray(from_pseudo_inertia(P), np.float64))


def _factor(pi: np.ndarray) -> np.ndarray | None:
    """Return the upper triangular U of a pseudo-inertia U U^T, or None if it is not positive definite."""
    flip = np.asarray(pseudo_inertia(pi), np.float64)[::-1, ::-1]
    try:
        return np.linalg.cholesky(flip)[::-1, ::-1]
    except np.linalg.LinAlgError:
        return None


def _numbers(element: Element | None, attribute: str, default: str) -> np.ndarray:
    text = default if element is None else element.get(attribute, default)
    return np.array([float(word) for word in text.split()])


def _read_inertial(link: Element) -> np.ndarray:
    """Return the inertial parameters (10,) of a link, in its frame."""
    inertial = link.find("inertial")
    assert inertial is not None
    origin = inertial.find("origin")
    com, rpy = _numbers(origin, "xyz", "0 0 0"), _numbers(origin, "rpy", "0 0 0")
    moments = inertial.find("inertia")
    I = Sym3(*(np.float64(_numbers(moments, name, "0")[0]) for name in MOMENTS))
    I = Quaternion.from_rpy(*rpy).to_matrix().congruence(I)
    mass = float(_numbers(inertial.find("mass"), "value", "0")[0])
    return np.asarray(RigidInertia.from_com(mass, Vec3(*com), I).to_parameters(), np.float64)


def _write_inertial(link: Element, pi: np.ndarray) -> None:
    """Write the inertial parameters (10,) of a link into its <inertial>, in the link's axes."""
    inertial = link.find("inertial")
    if inertial is None:
        _child(link, "inertial", {})
        inertial = link.find("inertial")
        assert inertial is not None
    M = RigidInertia.from_parameters(pi)
    mass, com, central = M.central() if M.m > 0 else (M.m, M.h, M.J)
    _child(inertial, "origin", {"xyz": " ".join(repr(float(x)) for x in com), "rpy": "0 0 0"})
    _child(inertial, "mass", {"value": repr(float(mass))})
    _child(inertial, "inertia", {n: repr(float(x)) for n, x in zip(MOMENTS, central, strict=True)})


def _child(parent: Element, tag: str, attributes: dict[str, str]) -> None:
    element = parent.find(tag)
    if element is None:
        last = parent[-1] if len(parent) else None
        element = SubElement(parent, tag)
        if last is not None:
            last.tail, element.tail = parent.text, last.tail  # indented as its siblings
    for name, value in attributes.items():
        element.set(name, value)


def _change_joint(joint: Element, before: Model, model: Model, name: str) -> None:
    """Write damping and friction of a joint, where they changed."""
    part = model.qd_slice(name)
    if part.start == part.stop:
        return
    new = [float(np.asarray(leaf)[part][0]) for leaf in (model.damping, model.friction)]
    if new != [float(np.asarray(leaf)[before.qd_slice(name)][0]) for leaf in (before.damping, before.friction)]:
        _child(joint, "dynamics", {"damping": repr(new[0]), "friction": repr(new[1])})
