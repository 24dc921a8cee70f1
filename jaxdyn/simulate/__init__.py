"""Simulation: steps and rollouts, integrators on the manifold of configurations, gradients through time."""

from jaxdyn.simulate import integrators as integrators
from jaxdyn.simulate.adaptive import adaptive_rollout as adaptive_rollout
from jaxdyn.simulate.checkpoints import checkpointed_rollout as checkpointed_rollout
from jaxdyn.simulate.integrators import INTEGRATORS as INTEGRATORS
from jaxdyn.simulate.linearize import linearize_trajectory as linearize_trajectory
from jaxdyn.simulate.rollouts import Trajectory as Trajectory
from jaxdyn.simulate.rollouts import rollout as rollout
from jaxdyn.simulate.rollouts import step as step
from jaxdyn.simulate.sharding import sharded_rollout as sharded_rollout
from jaxdyn.simulate.system import JointLimits as JointLimits
from jaxdyn.simulate.system import System as System
