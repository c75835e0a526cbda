"""Two Ray nodes on this machine, for tests; run by the Python that has Ray.

Prints the address, then reads commands: `lose` removes the second node without a goodbye and adds
another one, anything else ends it.
"""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster

CPUS = int(sys.argv[1])


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    options = {"num_cpus": CPUS, "memory": 4 << 30, "object_store_memory": 100 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={**options, "include_dashboard": False})
    node = cluster.add_node(**options)
    say(cluster.address)
    for line in sys.stdin:
        if line.strip() != "lose":
            break
        cluster.remove_node(node, allow_graceful=False)
        node = cluster.add_node(**options)
        say("lost")
    cluster.shutdown()


main()
