"""Spatial algebra: rotations, rigid transforms, motion and force vectors, inertias. Knows no bodies.

Every type is a small pytree of scalar components with operators and named methods, so that a formula
reads like the paper it comes from and runs as elementwise arithmetic over whatever axes the components
have. `matrix_of` derives the dense matrix of any linear map, for reading and for tests.
"""

from jaxdyn.spatial.dense import matrix_of as matrix_of
from jaxdyn.spatial.inertia import ArticulatedInertia as ArticulatedInertia
from jaxdyn.spatial.inertia import Moments as Moments
from jaxdyn.spatial.inertia import RigidInertia as RigidInertia
from jaxdyn.spatial.inertia import parallel_axis as parallel_axis
from jaxdyn.spatial.linear import Mat3 as Mat3
from jaxdyn.spatial.linear import Sym3 as Sym3
from jaxdyn.spatial.linear import Vec3 as Vec3
from jaxdyn.spatial.linear import cross_rows as cross_rows
from jaxdyn.spatial.linear import outer as outer
from jaxdyn.spatial.linear import skew as skew
from jaxdyn.spatial.linear import symmetric_outer as symmetric_outer
from jaxdyn.spatial.rotation import Quaternion as Quaternion
from jaxdyn.spatial.rotation import Turn as Turn
from jaxdyn.spatial.rotation import align_z as align_z
from jaxdyn.spatial.rotation import axis_angle as axis_angle
from jaxdyn.spatial.transform import Transform as Transform
from jaxdyn.spatial.transform import left_jacobian as left_jacobian
from jaxdyn.spatial.transform import left_jacobian_inverse as left_jacobian_inverse
from jaxdyn.spatial.vectors import Force as Force
from jaxdyn.spatial.vectors import Motion as Motion
from jaxdyn.spatial.vectors import MotionRows as MotionRows
