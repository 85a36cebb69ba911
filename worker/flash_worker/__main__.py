"""`python -m flash_worker`."""

import os
import sys

from flash_worker.main import main

code = main()
sys.stderr.flush()
# A load that was broken off by SIGTERM runs in a thread that cannot be ended: do not wait for it.
os._exit(code)
