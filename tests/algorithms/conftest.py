import numpy as np
import pytest

import jaxdyn


@pytest.fixture(scope="module")
def quadruped():
    model = jaxdyn.load("quadruped")
    armature = np.concatenate([np.zeros(6), np.random.default_rng(7).uniform(0.1, 0.5, model.nv - 6)])
    return model.replace(gravity=(1.0, 2.0, -9.0), armature=armature)
