"""ADDs that were refused: which of them a user can mend, so that an Event should say so. Pure.

A runtime's own mistakes and what mends itself (a view that lags, a pod that is known with another UID) get none:
kubelet says those already, and they are over with the next try.
"""

from flock.errors import AddressInUse, AddressRefused, FlockError, InvalidConfig, NodeConfigMissing, PoolExhausted

_REASONS: tuple[tuple[type[FlockError], str], ...] = (
    (InvalidConfig, "InvalidNetworkAnnotation"),
    (AddressRefused, "AddressRefused"),
    (AddressInUse, "AddressInUse"),
    (PoolExhausted, "NoFreeAddress"),
    (NodeConfigMissing, "NodeConfigMissing"),
)


def event_reason(error: FlockError) -> str | None:
    """The Event's reason; None where there should be none."""
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), None)
