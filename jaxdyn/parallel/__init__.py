"""Long chains in logarithmic depth: twins of the serial functions, by associative scans.

For latency on machines with many cores, not for throughput: a sweep over N bodies takes N steps one after the other, a
scan some 2 log2(N), with about twenty times the arithmetic. Batches of robots, and CPUs, are served better by the
serial functions.
"""

from jaxdyn.parallel.dynamics import forward_dynamics as forward_dynamics
from jaxdyn.parallel.dynamics import forward_kinematics as forward_kinematics
from jaxdyn.parallel.dynamics import inverse_dynamics as inverse_dynamics
from jaxdyn.parallel.factor import InnovationsFactor as InnovationsFactor
from jaxdyn.parallel.factor import innovations_factor as innovations_factor
