"""Numbers, ours beside theirs, in one run on one machine: ``make bench`` and ``make bench ONLY=cni``."""
