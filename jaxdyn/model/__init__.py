"""Models: the `Model` pytree, its builder, its configurations, reduced models."""

from jaxdyn._checks import ModelError as ModelError
from jaxdyn._checks import ModelWarning as ModelWarning
from jaxdyn.model.builder import ModelBuilder as ModelBuilder
from jaxdyn.model.configuration import difference as difference
from jaxdyn.model.configuration import integrate as integrate
from jaxdyn.model.configuration import neutral as neutral
from jaxdyn.model.configuration import random_configuration as random_configuration
from jaxdyn.model.edit import lock_joints as lock_joints
from jaxdyn.model.edit import subtree as subtree
from jaxdyn.model.geometry import Geometry as Geometry
from jaxdyn.model.model import Model as Model
from jaxdyn.model.parameters import inertial_parameters as inertial_parameters
from jaxdyn.model.parameters import with_inertial_parameters as with_inertial_parameters
from jaxdyn.model.rotors import Rotor as Rotor
from jaxdyn.model.rotors import add_rotors as add_rotors
from jaxdyn.model.topology import Topology as Topology
