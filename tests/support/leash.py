"""`python leash.py PARENT COMMAND...`: run COMMAND so that it is killed when PARENT dies, however that happens.

What a test starts keeps nothing that is worth a goodbye, and may be stopped (SIGSTOP) when its parent dies: so SIGKILL.
Only Linux has this; elsewhere it is a plain exec, and the next start cleans up.
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
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the signal was asked for
            raise SystemExit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
