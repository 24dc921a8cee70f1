"""Identification: a robot's inertias, friction and rotors from recorded motion and torque."""

from jaxdyn.sysid.base import BaseParameters as BaseParameters
from jaxdyn.sysid.base import base_parameters as base_parameters
from jaxdyn.sysid.base import base_regressor as base_regressor
from jaxdyn.sysid.bootstrapping import bootstrap as bootstrap
from jaxdyn.sysid.excitation import Excitation as Excitation
from jaxdyn.sysid.excitation import excitation as excitation
from jaxdyn.sysid.identification import identify as identify
from jaxdyn.sysid.recordings import Recording as Recording
from jaxdyn.sysid.recordings import read_recording as read_recording
from jaxdyn.sysid.results import CrossValidation as CrossValidation
from jaxdyn.sysid.results import Identification as Identification
from jaxdyn.sysid.signals import Samples as Samples
from jaxdyn.sysid.signals import differentiate as differentiate
from jaxdyn.sysid.signals import lowpass as lowpass
from jaxdyn.sysid.signals import prepare as prepare
from jaxdyn.sysid.signals import resample as resample
from jaxdyn.sysid.solving import Status as Status
from jaxdyn.sysid.terms import parameter_names as parameter_names
from jaxdyn.sysid.terms import torque_regressor as torque_regressor
from jaxdyn.sysid.trajectories import TrajectoryFit as TrajectoryFit
from jaxdyn.sysid.trajectories import fit_trajectories as fit_trajectories
