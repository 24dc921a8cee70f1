"""Forward dynamics as estimation (000) and as optimal control (003), in plain matrices, one step a page.

`filter` and `smooth` are the Kalman filter and its smoother, `optimal_control` the linear-quadratic regulator; all
three give `forward_dynamics` and with it what the articulated-body algorithm knows on the way. They are written to be
read, and linear in the number of bodies; `jaxdyn.forward_dynamics` is the fast one.
"""

from jaxdyn.estimation import lq as lq
from jaxdyn.estimation.control import OptimalControl as OptimalControl
from jaxdyn.estimation.control import mechanism as mechanism
from jaxdyn.estimation.control import optimal_control as optimal_control
from jaxdyn.estimation.kalman import Filtered as Filtered
from jaxdyn.estimation.kalman import Smoothed as Smoothed
from jaxdyn.estimation.kalman import filter as filter
from jaxdyn.estimation.kalman import smooth as smooth
from jaxdyn.estimation.links import block_diagonal as block_diagonal
from jaxdyn.estimation.noise import sample as sample
from jaxdyn.estimation.parts import AccelerationComponents as AccelerationComponents
from jaxdyn.estimation.parts import acceleration_components as acceleration_components
