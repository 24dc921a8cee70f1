"""Files in and out: URDF, MJCF, saved models; conversion to other libraries' conventions."""

from jaxdyn.io.convert import from_mujoco as from_mujoco
from jaxdyn.io.convert import from_pinocchio as from_pinocchio
from jaxdyn.io.convert import to_mujoco as to_mujoco
from jaxdyn.io.convert import to_pinocchio as to_pinocchio
from jaxdyn.io.loading import load as load
from jaxdyn.io.mjcf import load_mjcf as load_mjcf
from jaxdyn.io.mjcf import model_from_mujoco as model_from_mujoco
from jaxdyn.io.mjcf import parse_mjcf as parse_mjcf
from jaxdyn.io.mjcf_writer import to_mjcf as to_mjcf
from jaxdyn.io.save import load_saved as load_saved
from jaxdyn.io.save import save as save
from jaxdyn.io.urdf import load_urdf as load_urdf
from jaxdyn.io.urdf import parse_urdf as parse_urdf
from jaxdyn.io.urdf_update import update_urdf as update_urdf
from jaxdyn.io.urdf_writer import to_urdf as to_urdf
