"""The spatial operator algebra."""

from jaxdyn.operators.dynamics import bias_terms as bias_terms
from jaxdyn.operators.dynamics import forward_dynamics as forward_dynamics
from jaxdyn.operators.dynamics import innovations_factor as innovations_factor
from jaxdyn.operators.dynamics import mass_matrix_inverse as mass_matrix_inverse
from jaxdyn.operators.dynamics import operational_inertias_inverse as operational_inertias_inverse
from jaxdyn.operators.operational import OperationalSpace as OperationalSpace
from jaxdyn.operators.operational import jacobian_gram as jacobian_gram
from jaxdyn.operators.operational import jacobian_normal_inverse as jacobian_normal_inverse
from jaxdyn.operators.operational import manipulability as manipulability
from jaxdyn.operators.operational import operational_space_dynamics as operational_space_dynamics
from jaxdyn.operators.operational import operational_space_inertia as operational_space_inertia
from jaxdyn.operators.operational import operational_space_inertia_inverse as operational_space_inertia_inverse
from jaxdyn.operators.operational import tip_force_acceleration as tip_force_acceleration
from jaxdyn.operators.operator import Operator as Operator
from jaxdyn.operators.robot import SpatialOperators as SpatialOperators
from jaxdyn.operators.robot import spatial_operators as spatial_operators
