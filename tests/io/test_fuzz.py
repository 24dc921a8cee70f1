"""Mutated files: whatever comes, either a model or a ModelError, and quickly."""

import random
import re
import time
import warnings

import pytest

import jaxdyn
from jaxdyn import ModelError, ModelWarning
from jaxdyn.io import parse_mjcf, parse_urdf, to_mjcf, to_urdf

SECONDS = 2.0
ALPHABET = ["<", ">", "/", '"', "=", "&", " ", "0", "-", "nan", "inf", "1e999", "1,5", "\0", "\n", "é", "<a>", "]]>",
            "<!--", "<!DOCTYPE r>", "&lt;", "name", "link", 'type="fixed"', "-1", "1e-320", "9" * 400, "1e160", "-1e300", "1e-160"]  # fmt: skip


def seeds():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        texts = [to_urdf(jaxdyn.load(name)) for name in ("pendulum", "arm7", "quadruped")]
    mimic = texts[1].replace("</joint>", '<mimic joint="joint1" multiplier="2"/></joint>', 3)
    return [*texts, mimic]


def mutate(rng, text):
    """Change a few characters, words, lines or attributes of a text."""
    for _ in range(rng.randint(1, 4)):
        i, j = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        choice = rng.randrange(7)
        if choice == 0:  # cut
            text = text[:i] + text[min(j, i + rng.randint(1, 200)) :]
        elif choice == 1:  # insert
            text = text[:i] + rng.choice(ALPHABET) + text[i:]
        elif choice == 2:  # repeat
            text = text[:i] + text[i : i + 300] * rng.randint(2, 4) + text[i + 300 :]
        elif choice == 3:  # swap two words
            words = text.split(" ")
            a, b = rng.randrange(len(words)), rng.randrange(len(words))
            words[a], words[b] = words[b], words[a]
            text = " ".join(words)
        elif choice == 4:  # drop a line
            lines = text.split("\n")
            del lines[rng.randrange(len(lines))]
            text = "\n".join(lines)
        elif choice == 5:  # another value for some attribute
            parts = text.split('"')
            if len(parts) > 2:
                parts[rng.randrange(len(parts) // 2) * 2 + 1] = rng.choice(
                    [*ALPHABET, rng.choice(parts[1::2]), "", "0 0 0", "fixed", "floating", "planar", "1 2"]
                )
            text = '"'.join(parts)
        else:  # replace a character
            text = text[:i] + rng.choice(ALPHABET) + text[i + 1 :]
    return text


def survive(load, mutants, rng):
    """Load mutants; return how many loaded and how many were refused. Anything else raises."""
    loaded = refused = 0
    for mutant in mutants:
        start = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ModelWarning)
                model = load(mutant, strict=rng.random() < 0.3)
            assert hash((model.topology, model.geometry))  # it is fit for use
            assert sum(len(group.bodies) for group in model.topology.groups) == model.nbodies
            loaded += 1
        except ModelError as error:
            refused += 1
            assert re.match(r"<string>|.*\.npz", str(error)), error
        assert time.perf_counter() - start < SECONDS
    return loaded, refused


def urdf_mutants(count, seed):
    rng, texts = random.Random(seed), seeds()
    load = lambda text, strict: parse_urdf(text, floating_base=rng.random() < 0.5, strict=strict)
    return survive(load, (mutate(rng, rng.choice(texts)) for _ in range(count)), rng)


def test_mutated_urdf_files():
    loaded, refused = urdf_mutants(300, seed=0)
    assert loaded > 10  # the mutations are not all fatal ...
    assert refused > 100  # ... nor all harmless


def test_mutated_mjcf_files(tmp_path, monkeypatch):
    pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its log where it stands
    rng, text = random.Random(0), to_mjcf(jaxdyn.load("pendulum"))
    loaded, refused = survive(parse_mjcf, (mutate(rng, text) for _ in range(200)), rng)
    assert loaded > 3
    assert refused > 60


def test_mutated_saved_models(tmp_path):
    path = tmp_path / "model.npz"
    jaxdyn.save(jaxdyn.load("pendulum"), path)
    rng, whole = random.Random(0), path.read_bytes()
    static = whole.index(b'"format"')  # the JSON, where a change may go unnoticed longest

    def mutants():
        for i in range(300):
            data = bytearray(whole)
            for _ in range(rng.randint(1, 4)):
                start, stop = (static, static + 900) if i % 2 else (0, len(data))
                data[rng.randrange(start, min(stop, len(data)))] = rng.randrange(256)
            yield bytes(data[: rng.randrange(len(data))] if i % 10 == 0 else data)

    def load(data, strict):
        path.write_bytes(data)
        return jaxdyn.load(path, strict=strict)

    loaded, refused = survive(load, mutants(), rng)
    assert loaded > 3
    assert refused > 100


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 11))
def test_ten_thousand_mutated_files(seed):
    assert sum(urdf_mutants(1000, seed)) == 1000
