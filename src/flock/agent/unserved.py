"""What a NodeConfig asks for that this version doesn't serve yet: said by name, never passed over in silence. Pure."""

from collections.abc import Iterator

from flock.api.node_config import NodeConfigSpec


def unserved(spec: NodeConfigSpec) -> Iterator[str]:
    """One sentence for each thing that is configured and has no effect."""
    if spec.anycast:
        yield "spec.anycast has no effect yet: no claim of a pod is served"
    if spec.bgp is not None and spec.bgp.mesh:
        yield "spec.bgp.mesh has no effect yet: name the other nodes as peers"
