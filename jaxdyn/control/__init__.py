"""Feedback control."""

from jaxdyn.control.decoupled import pose_error as pose_error
from jaxdyn.control.decoupled import pose_feedback as pose_feedback
from jaxdyn.control.decoupled import pose_vector as pose_vector
from jaxdyn.control.decoupled import rate_feedback as rate_feedback
