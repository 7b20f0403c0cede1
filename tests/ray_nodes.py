"""Hold a Ray cluster of two nodes on this machine until stdin ends; each line there kills the second without grace."""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

from ray.cluster_utils import Cluster

# The object store is small: /dev/shm may be.
NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80_000_000}

if __name__ == "__main__":
    cluster: Any = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    second = cluster.add_node(**NODE)
    cluster.wait_for_nodes()
    sys.stdout.write(f"{cluster.address}\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        cluster.remove_node(second, allow_graceful=False)
        sys.stdout.write("killed\n")
        sys.stdout.flush()
    cluster.shutdown()
