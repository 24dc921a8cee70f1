"""Mutated files: whatever comes, either a model or a ModelError, and quickly."""

import random
import time
import warnings

import pytest

import jaxdyn
from jaxdyn import ModelError, ModelWarning
from jaxdyn.io import parse_urdf, to_urdf

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


def survive(count, seed):
    rng, texts = random.Random(seed), seeds()
    loaded = refused = 0
    for _ in range(count):
        text = mutate(rng, rng.choice(texts))
        start = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ModelWarning)
                parse_urdf(text, floating_base=rng.random() < 0.5, strict=rng.random() < 0.3)
            loaded += 1
        except ModelError as error:
            refused += 1
            assert str(error).startswith("<string>"), error
        assert time.perf_counter() - start < SECONDS
    return loaded, refused


def test_mutated_files():
    loaded, refused = survive(300, seed=0)
    assert loaded > 10  # the mutations are not all fatal ...
    assert refused > 100  # ... nor all harmless


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 11))
def test_ten_thousand_mutated_files(seed):
    assert sum(survive(1000, seed)) == 1000
