"""jaxdyn: differentiable rigid-multibody dynamics on JAX.

Pure functions over a model that is a pytree: everything works under `jax.jit`, `jax.vmap` and `jax.grad`,
with respect to the state and to every number of the model. Importing changes no configuration.

    >>> import jax, jaxdyn
    >>> model = jaxdyn.load("arm7")
    >>> q = jaxdyn.random_configuration(model, jax.random.key(0))
    >>> jaxdyn.forward_kinematics(model, q).position.shape
    (7, 3)
"""

import importlib as _importlib
import typing as _typing

from jaxdyn import io as io
from jaxdyn import joints as joints
from jaxdyn import model as model
from jaxdyn import spatial as spatial
from jaxdyn._checks import ModelError as ModelError
from jaxdyn._checks import ModelWarning as ModelWarning
from jaxdyn._version import __version__ as __version__
from jaxdyn.algorithms import Poses as Poses
from jaxdyn.algorithms import bias_force as bias_force
from jaxdyn.algorithms import body_accelerations as body_accelerations
from jaxdyn.algorithms import body_velocities as body_velocities
from jaxdyn.algorithms import center_of_mass as center_of_mass
from jaxdyn.algorithms import center_of_mass_jacobian as center_of_mass_jacobian
from jaxdyn.algorithms import centroidal_momentum as centroidal_momentum
from jaxdyn.algorithms import centroidal_momentum_bias as centroidal_momentum_bias
from jaxdyn.algorithms import centroidal_momentum_matrix as centroidal_momentum_matrix
from jaxdyn.algorithms import coriolis_matrix as coriolis_matrix
from jaxdyn.algorithms import coriolis_product as coriolis_product
from jaxdyn.algorithms import forward_dynamics as forward_dynamics
from jaxdyn.algorithms import forward_kinematics as forward_kinematics
from jaxdyn.algorithms import frame_acceleration as frame_acceleration
from jaxdyn.algorithms import frame_pose as frame_pose
from jaxdyn.algorithms import frame_poses as frame_poses
from jaxdyn.algorithms import frame_velocity as frame_velocity
from jaxdyn.algorithms import gibbs_function as gibbs_function
from jaxdyn.algorithms import gravity_force as gravity_force
from jaxdyn.algorithms import inverse_dynamics as inverse_dynamics
from jaxdyn.algorithms import jacobian as jacobian
from jaxdyn.algorithms import jacobian_bias as jacobian_bias
from jaxdyn.algorithms import kinetic_energy as kinetic_energy
from jaxdyn.algorithms import mass_matrix as mass_matrix
from jaxdyn.algorithms import mass_matrix_inverse as mass_matrix_inverse
from jaxdyn.algorithms import passive_force as passive_force
from jaxdyn.algorithms import plain as plain
from jaxdyn.algorithms import potential_energy as potential_energy
from jaxdyn.algorithms import power as power
from jaxdyn.algorithms import reaction_forces as reaction_forces
from jaxdyn.io import load as load
from jaxdyn.io import save as save
from jaxdyn.model import Model as Model
from jaxdyn.model import ModelBuilder as ModelBuilder
from jaxdyn.model import Rotor as Rotor
from jaxdyn.model import add_rotors as add_rotors
from jaxdyn.model import difference as difference
from jaxdyn.model import inertial_parameters as inertial_parameters
from jaxdyn.model import integrate as integrate
from jaxdyn.model import lock_joints as lock_joints
from jaxdyn.model import neutral as neutral
from jaxdyn.model import random_configuration as random_configuration
from jaxdyn.model import subtree as subtree
from jaxdyn.model import with_inertial_parameters as with_inertial_parameters

if _typing.TYPE_CHECKING:
    from jaxdyn import control as control
    from jaxdyn import derivatives as derivatives
    from jaxdyn import diagonal as diagonal
    from jaxdyn import estimation as estimation
    from jaxdyn import operators as operators
    from jaxdyn import parallel as parallel
    from jaxdyn import simulate as simulate
    from jaxdyn import sysid as sysid
    from jaxdyn import trajopt as trajopt
    from jaxdyn import viz as viz
    from jaxdyn.simulate import rollout as rollout

_ON_FIRST_USE = {
    "control", "derivatives", "diagonal", "estimation", "operators", "parallel", "simulate", "sysid", "trajopt", "viz",
    "rollout",
}  # fmt: skip


def __getattr__(name: str) -> _typing.Any:
    """Import what is not imported with the package."""
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module 'jaxdyn' has no attribute {name!r}")
    if name == "rollout":
        return _importlib.import_module("jaxdyn.simulate").rollout
    return _importlib.import_module(f"jaxdyn.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_FIRST_USE})
