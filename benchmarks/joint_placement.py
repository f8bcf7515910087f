"""How long a joint assignment of many workloads to a few pools takes: the program alone, and with the predictions.

Rates and workloads are drawn by a fixed seed. The limits of space and time leave a third of what everything in the
best pool would take, so that they decide. Processor time of one core and time on the wall, the best of three.

Run with: .venv/bin/python benchmarks/joint_placement.py [--workloads 500] [--pools 8] [--split]
"""

import argparse

import numpy as np
from many_predictions import rates, workloads
from readings import best, spent_by

from cephfit.core.units import GIB
from cephfit.mapper.joint_placement import JointPlacement, JointWorkload, Limit, Option, place_jointly

ROUNDS = 3
