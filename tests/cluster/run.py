"""A Kubernetes control plane for a person to try things on: `python tests/cluster/run.py`. Ctrl-C ends it.

`make cluster-tools` has to have built its programs. With --kwok-nodes pods are said to run; nothing runs.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.cluster import ControlPlane
from support.cluster_client import tools
from support.cluster_processes import Failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kwok-nodes", type=int, default=0, metavar="N", help="pretended nodes")
    parser.add_argument("--gpus", type=int, default=0, metavar="N", help="nvidia.com/gpu of each")
    options = parser.parse_args()
    # The end of a terminal or of a service is an end in good order too.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        clients = {str(Path(path).parent) for path in tools("kubectl", "helm").values()}
        with ControlPlane(scheduler=True) as cluster:
            if options.kwok_nodes:
                cluster.add_kwok_nodes(options.kwok_nodes, gpus=options.gpus)
            print(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}")
            print(f"export PATH={shlex.quote(':'.join(sorted(clients)))}:$PATH")
            print("# In another terminal: the two lines above, then kubectl and helm. Ctrl-C here ends it.", flush=True)
            signal.pause()
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
