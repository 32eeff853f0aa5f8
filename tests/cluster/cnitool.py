"""cnitool on a lab node: libcni itself, without a runtime around it.

Invariant: nothing but its exit code and what it prints is looked at.
"""

import os
from dataclasses import dataclass

from flock.cni.install import NETWORK
from flock.model.ownership import CNI_BIN_DIR, CNI_CONF_DIR
from flock_lab.gobuild import built
from flock_lab.host import Completed
from flock_lab.node import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Cnitool:
    """``cnitool VERB flock NETNS``; ``extra`` goes into its environment."""

    node: Node

    def call(self, verb: str, netns: str, check: bool = True, **extra: str) -> Completed:
        environment = {"NETCONFPATH": str(CNI_CONF_DIR), "CNI_PATH": str(CNI_BIN_DIR), "PATH": os.environ["PATH"]}
        return self.node.run(str(built("cnitool") / "cnitool"), verb, NETWORK, f"/run/netns/{netns}", check=check,
                             env={**environment, **extra}, timeout=65.0)
