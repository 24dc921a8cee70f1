"""Control: feedback laws for joints, frames and forces, regulators, adaptation, and inverse kinematics.

Controllers are pure functions of model and state that return joint forces, to be used in the policies of
`jaxdyn.rollout`.
"""

from jaxdyn.control.adaptive import adapt as adapt
from jaxdyn.control.adaptive import adaptive_control as adaptive_control
from jaxdyn.control.adaptive import slotine_li_regressor as slotine_li_regressor
from jaxdyn.control.decoupled import pose_error as pose_error
from jaxdyn.control.decoupled import pose_feedback as pose_feedback
from jaxdyn.control.decoupled import pose_vector as pose_vector
from jaxdyn.control.decoupled import rate_feedback as rate_feedback
from jaxdyn.control.goals import Goal as Goal
from jaxdyn.control.goals import axis_goal as axis_goal
from jaxdyn.control.goals import orientation_goal as orientation_goal
from jaxdyn.control.goals import pose_goal as pose_goal
from jaxdyn.control.goals import position_goal as position_goal
from jaxdyn.control.goals import posture_goal as posture_goal
from jaxdyn.control.joint_space import computed_torque as computed_torque
from jaxdyn.control.joint_space import gravity_compensation as gravity_compensation
from jaxdyn.control.joint_space import passivity_based as passivity_based
from jaxdyn.control.joint_space import pd as pd
from jaxdyn.control.joint_space import pd_plus as pd_plus
from jaxdyn.control.kinematics import Solution as Solution
from jaxdyn.control.kinematics import inverse_kinematics as inverse_kinematics
from jaxdyn.control.lqr import Feedback as Feedback
from jaxdyn.control.lqr import Regulator as Regulator
from jaxdyn.control.lqr import equilibrium_lqr as equilibrium_lqr
from jaxdyn.control.lqr import follow as follow
from jaxdyn.control.lqr import lqr as lqr
from jaxdyn.control.lqr import lqr_infinite as lqr_infinite
from jaxdyn.control.lqr import trajectory_lqr as trajectory_lqr
from jaxdyn.control.reference import Tracking as Tracking
from jaxdyn.control.reference import desired_motion as desired_motion
from jaxdyn.control.reference import tracking as tracking
from jaxdyn.control.stateful import stateful_rollout as stateful_rollout
from jaxdyn.control.status import Status as Status
from jaxdyn.control.task_space import frame_error as frame_error
from jaxdyn.control.task_space import frame_force as frame_force
from jaxdyn.control.task_space import hybrid_control as hybrid_control
from jaxdyn.control.task_space import operational_space_control as operational_space_control
from jaxdyn.control.task_space import selection_matrices as selection_matrices
