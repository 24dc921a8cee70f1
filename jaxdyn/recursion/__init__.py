"""Recursions over chains and trees."""

from jaxdyn.recursion.limbs import limb_groups as limb_groups
from jaxdyn.recursion.sweeps import outward as outward
