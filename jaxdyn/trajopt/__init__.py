"""Trajectory optimisation: motions that are best, for robots and for any dynamics x+ = f(x, u)."""

from jaxdyn._compiling import SMALL_LOOPS as SMALL_LOOPS
from jaxdyn.trajopt.collocation import collocation as collocation
from jaxdyn.trajopt.costs import Cost as Cost
from jaxdyn.trajopt.costs import cost as cost
from jaxdyn.trajopt.costs import residual as residual
from jaxdyn.trajopt.ddp import ilqr as ilqr
from jaxdyn.trajopt.plant import Plant as Plant
from jaxdyn.trajopt.plant import plant_of as plant_of
from jaxdyn.trajopt.residuals import center_of_mass as center_of_mass
from jaxdyn.trajopt.residuals import centroidal_momentum as centroidal_momentum
from jaxdyn.trajopt.residuals import configuration as configuration
from jaxdyn.trajopt.residuals import frame_pose as frame_pose
from jaxdyn.trajopt.residuals import frame_position as frame_position
from jaxdyn.trajopt.residuals import frame_velocity as frame_velocity
from jaxdyn.trajopt.residuals import joint_limits as joint_limits
from jaxdyn.trajopt.residuals import state as state
from jaxdyn.trajopt.residuals import torque as torque
from jaxdyn.trajopt.residuals import torque_minus_gravity as torque_minus_gravity
from jaxdyn.trajopt.residuals import velocity as velocity
from jaxdyn.trajopt.results import Solution as Solution
from jaxdyn.trajopt.results import Status as Status
from jaxdyn.trajopt.shooting import shooting as shooting
