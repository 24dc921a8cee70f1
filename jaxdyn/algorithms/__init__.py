"""Algorithms of rigid-body dynamics, one file each."""

from jaxdyn.algorithms.kinematics import Poses as Poses
from jaxdyn.algorithms.kinematics import forward_kinematics as forward_kinematics
from jaxdyn.algorithms.kinematics import frame_pose as frame_pose
from jaxdyn.algorithms.kinematics import frame_poses as frame_poses
