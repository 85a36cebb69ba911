"""`python -m flashfleet.leash PARENT COMMAND...`: run COMMAND so that it dies with the process PARENT.

A supervisor that is killed outright cannot stop its children. On Linux the kernel does it, by the parent-death signal,
which survives exec; elsewhere this is a plain exec.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the signal was asked for
            raise SystemExit(1)
    os.execvp(command[0], command)  # noqa: S606  the command is our own plan's


if __name__ == "__main__":
    main()
