"""Recursions over chains and trees."""

from jaxdyn.recursion.batching import batched as batched
from jaxdyn.recursion.batching import moving_leaves as moving_leaves
from jaxdyn.recursion.batching import tiled as tiled
from jaxdyn.recursion.keeping import kept as kept
from jaxdyn.recursion.limbs import branches as branches
from jaxdyn.recursion.limbs import equal_limbs as equal_limbs
from jaxdyn.recursion.limbs import limb_groups as limb_groups
from jaxdyn.recursion.linear import summed_as as summed_as
from jaxdyn.recursion.linear import with_values as with_values
from jaxdyn.recursion.ruled import Ruled as Ruled
from jaxdyn.recursion.sweeps import Known as Known
from jaxdyn.recursion.sweeps import Packed as Packed
from jaxdyn.recursion.sweeps import Walk as Walk
from jaxdyn.recursion.sweeps import outward as outward
from jaxdyn.recursion.sweeps import unpacked as unpacked
from jaxdyn.recursion.target import compile_for as compile_for
from jaxdyn.recursion.target import side_by_side as side_by_side
