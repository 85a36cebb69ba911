"""The model's side of a request."""

import os

# Read by OpenMP when torch is first loaded. Threads that spin at a barrier while another process has their core made a
# step take seconds instead of 60 ms on two shared cores; threads that sleep cost a few microseconds at each barrier.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
