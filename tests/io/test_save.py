"""Saved models come back exactly, and damaged files are refused."""

import io
import json
import zipfile
from dataclasses import dataclass

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import ModelError, ModelWarning
from jaxdyn.joints import JOINT_TYPES, Joint, register
from jaxdyn.model.bundled import BUNDLED
from jaxdyn.spatial import Transform, axis_angle


@pytest.mark.parametrize("name", [*BUNDLED, "forest"])
def test_exact_round_trip(name, tmp_path, forest):
    model = forest if name == "forest" else jaxdyn.load(name)
    path = tmp_path / "model.npz"
    jaxdyn.save(model, path)
    again = jaxdyn.load(path)
    assert again.topology == model.topology
    assert again.geometry == model.geometry
    chex.assert_trees_all_equal(again, model)
    assert again.dtype == model.dtype


def test_doubtful_models_stay_doubtful(tmp_path):
    builder = jaxdyn.ModelBuilder().add_body("a", mass=1, inertia=(1, 1, 1)).add_body("b", "a", joint_name="loose")
    with pytest.warns(ModelWarning, match="moves no inertia"):
        jaxdyn.save(builder.build(), tmp_path / "m.npz")
    with pytest.warns(ModelWarning, match="'loose' moves no inertia"):
        jaxdyn.load(tmp_path / "m.npz")
    with pytest.raises(ModelError, match="strict=True: joint 'loose' moves no inertia"):
        jaxdyn.load(tmp_path / "m.npz", strict=True)


def test_what_cannot_be_loaded_is_not_saved(tmp_path):
    arm = jaxdyn.load("arm7")
    for model, message in (
        (arm.replace(gravity=jnp.full(3, jnp.nan)), "gravity must be finite"),
        (arm.astype(jnp.bfloat16), "must be floating-point"),
        (arm.replace(placement=jnp.stack([arm.placement] * 2)), "a batch of them"),
    ):
        with pytest.raises(ModelError, match=message):
            jaxdyn.save(model, tmp_path / "m.npz")
    assert not (tmp_path / "m.npz").exists()


def test_rounding_is_reported(tmp_path):
    jaxdyn.save(jaxdyn.load("arm7"), tmp_path / "m.npz")
    with jax.enable_x64(False), pytest.warns(ModelWarning, match="rounded from float64 to float32"):
        assert jaxdyn.load(tmp_path / "m.npz").dtype == jnp.float32


def test_keeps_single_precision(tmp_path):
    model = jaxdyn.load("arm7").astype(jnp.float32)
    jaxdyn.save(model, tmp_path / "m.npz")
    assert jaxdyn.load(tmp_path / "m.npz").dtype == jnp.float32


@dataclass(frozen=True)
class Cam(Joint):
    """A joint type of one's own, with a static number."""

    lift: float = 0.1
    type = "cam"
    nq = nv = 1

    def transform(self, parameters, q):
        return Transform(axis_angle(parameters.axis, q[0]), (self.lift * q[0] * q[0]) * parameters.axis)


def test_own_joint_types_must_be_registered(tmp_path):
    model = jaxdyn.ModelBuilder().add_body("a", joint=Cam(0.25), mass=1, inertia=(1, 1, 1)).build()
    with pytest.raises(ModelError, match="'Cam' is not known by name; use jaxdyn.joints.register"):
        jaxdyn.save(model, tmp_path / "m.npz")
    register(Cam)
    try:
        jaxdyn.save(model, tmp_path / "m.npz")
        assert jaxdyn.load(tmp_path / "m.npz").topology.joints == (Cam(0.25),)
    finally:
        del JOINT_TYPES["cam"]
    with pytest.raises(ModelError, match="joint of the unknown type 'cam'"):
        jaxdyn.load(tmp_path / "m.npz")


@pytest.fixture
def archive(tmp_path):
    """A saved arm as a dictionary of arrays, and a function that writes and loads it."""
    path = tmp_path / "arm.npz"
    jaxdyn.save(jaxdyn.load("arm7"), path)
    arrays = dict(np.load(path))
    static = json.loads(arrays["static"].tobytes())

    def load():
        arrays["static"] = np.frombuffer(json.dumps(static).encode(), np.uint8)
        np.savez(path, **arrays)
        return jaxdyn.load(path)

    return arrays, static, load


DAMAGE = {
    "missing leaf": (lambda a, s: a.pop("axis"), "lacks 'axis'"),
    "wrong shape": (lambda a, s: a.update(axis=np.zeros((3, 3))), r"axis must have shape \(7, 3\); got \(3, 3\)"),
    "integers": (lambda a, s: a.update(gravity=np.array([0, 0, -10])), "gravity must be floating-point"),
    "nan": (lambda a, s: a.update(gravity=np.array([0, 0, np.nan])), "gravity must be finite"),
    "infinite": (lambda a, s: a.update(pitch=np.full(7, np.inf)), "pitch must be finite"),
    "other format": (lambda a, s: s.update(format=99), "written in format 99; this version reads format 1"),
    "loop": (lambda a, s: s["topology"].update(parents=[5, 0, 1, 2, 3, 4, 5]), "comes before its parent"),
    "frame in the air": (lambda a, s: s["topology"].update(frame_parents=[-1, 99]), "frame in it hangs on no body"),
    "twins": (lambda a, s: s["topology"].update(body_names=["x"] * 7), "a name occurs twice"),
    "number for a name": (lambda a, s: s["topology"].update(joint_names=[1, 2, 3, 4, 5, 6, 7]), "not text"),
    "short list": (lambda a, s: s["topology"].update(body_names=["x"]), "differ in length"),
    "follows against its type": (lambda a, s: s["topology"].update(followed=[3] * 7), "against its type"),
    "follows no joint": (lambda a, s: s["topology"].update(followed=[99] + [-1] * 6), "follows 99, which is no joint"),
    "follows text": (lambda a, s: s["topology"].update(followed=["x"] + [-1] * 6), "follows 'x'"),
    "mimic of a free joint": (
        lambda a, s: (s["joints"][0].update(type="mimic", inner={"type": "free"}),
                      s["topology"].update(followed=[1] + [-1] * 6)), "other than one coordinate"),
    "negative mass": (lambda a, s: a["inertia"].__setitem__((0, 0), -1.0), "mass must not be negative"),
    "zero quaternion": (lambda a, s: a["placement"].__setitem__(0, 0.0), "quaternion must not be zero"),
    "zero axis": (lambda a, s: a["axis"].__setitem__(0, 0.0), "axis must not be zero"),
    "negative damping": (lambda a, s: a["damping"].__setitem__(0, -1.0), "damping must not be negative"),
    "mixed types": (lambda a, s: a.update(axis=a["axis"].astype(np.float32)), "all leaves of one type"),
    "size of a shape": (lambda a, s: s["geometry"][0].update(size=["a", "b"]), "size of a cylinder"),
    "nested size": (lambda a, s: s["geometry"][0].update(size=[[1], [1]]), "size of a cylinder"),
    "placement of a shape": (lambda a, s: s["geometry"][0].update(placement=[1]), "is damaged"),
    "mesh": (lambda a, s: s["geometry"][0].update(mesh={}), "is damaged"),
    "no joints": (lambda a, s: s.pop("joints"), "damaged"),
    "unknown field": (lambda a, s: s["topology"].update(extra=1), "damaged"),
    "unknown joint": (lambda a, s: s["joints"][0].update(type="warp"), "unknown type 'warp'"),
    "unknown shape": (lambda a, s: s["geometry"][0].update(shape="blob"), "unknown shape 'blob'"),
    "shape in the air": (lambda a, s: s["geometry"][0].update(frame="z"), "no body or frame named 'z'"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_files_are_refused(case, archive):
    arrays, static, load = archive
    damage, message = DAMAGE[case]
    damage(arrays, static)
    with pytest.raises(ModelError, match=r"arm\.npz: .*(" + message + ")"):
        load()


def test_things_that_are_no_saved_model(tmp_path):
    path = tmp_path / "x.npz"
    jaxdyn.save(jaxdyn.load("pendulum"), path)
    whole = path.read_bytes()
    for content in (b"", b"hello", whole[: len(whole) // 2], whole[:-30]):
        path.write_bytes(content)
        with pytest.raises(ModelError, match="not a saved model"):
            jaxdyn.load(path)
    np.savez(path, a=np.array([object()]))
    with pytest.raises(ModelError, match="not a saved model"):
        jaxdyn.load(path)


def test_archive_bombs_are_refused(tmp_path):
    path, blob = tmp_path / "bomb.npz", io.BytesIO()
    np.lib.format.write_array(blob, np.zeros(9 * 2**20))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("axis.npy", blob.getvalue())
    assert path.stat().st_size < 2**20
    with pytest.raises(ModelError, match="unpacks to"):
        jaxdyn.load(path)


def test_file_name_must_say_what_it_is(tmp_path):
    with pytest.raises(ValueError, match="must end in .npz"):
        jaxdyn.save(jaxdyn.load("pendulum"), tmp_path / "model.bin")
