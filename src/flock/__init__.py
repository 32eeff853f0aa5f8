"""flock: a Kubernetes CNI for clusters that route (no overlay, no NAT between pods, IPv6 first)."""

__version__ = "0.1.0"
