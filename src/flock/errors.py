"""The one error tree. Every error that leaves a module of flock is one of these.

::

    FlockError                    code  retry
    ├── InvalidEnvironment           4   no    a CNI_* variable or an argument is wrong
    ├── IncompatibleVersion          1   no    a cniVersion that flock doesn't speak
    ├── UnsupportedField             2   no    a netconf field that flock refuses
    ├── UnknownContainer             3   no    CHECK of something flock never added
    ├── IOFailure                    5   no    a file, a socket or the kernel said no
    ├── DecodeFailure                6   no    not JSON, not a frame
    ├── InvalidConfig                7   no    a netconf, NodeConfig or annotation with a wrong value
    ├── InvalidNetns                 8   no    the netns is missing, no netns, or the host's own
    ├── TryAgain                    11   yes   not ready, not known yet, deadline over
    │   ├── AddressInUse            11   yes   another pod has the one address that was asked for
    │   └── NodeConfigMissing       11   yes   this node has no NodeConfig
    ├── AgentUnavailable            50   yes   STATUS alone: the agent can't serve ADD
    └── FlockFailure               100   no    flock's own refusals
        ├── PoolExhausted          101   yes   no free address in the effective CIDRs
        ├── AddressRefused         102   no    a requested address that can't be given
        ├── AlreadyAttached        103   no    ADD twice, or the interface name is taken
        └── CheckFailed            104   no    CHECK found a difference; the message names it

Codes 1–11 and 50 are those of the CNI specification 1.1.0 (section 3, "Error"); 8 is the Go library's; 100 and up are
a plugin's own. ``msg`` is one sentence for whoever reads ``kubectl describe pod``; ``details`` is one line more.
Foreign exceptions are translated once, where they are caught, with ``raise … from error``.
"""

from typing import ClassVar


class FlockError(Exception):
    """The root: a message for users, an optional detail, a CNI code and whether trying again can help.

    ``retry_after``: seconds for which whoever refused wants to be left alone.
    """

    code: ClassVar[int] = 100
    retry: ClassVar[bool] = False
    retry_after: float = 0.0

    def __init__(self, msg: str, details: str = "") -> None:
        super().__init__(msg)
        self.msg = msg
        self.details = details

    def __str__(self) -> str:
        return f"{self.msg}: {self.details}" if self.details else self.msg


class IncompatibleVersion(FlockError):
    code = 1


class UnsupportedField(FlockError):
    code = 2


class UnknownContainer(FlockError):
    code = 3


class InvalidEnvironment(FlockError):
    code = 4


class IOFailure(FlockError):
    code = 5


class DecodeFailure(FlockError):
    code = 6


class InvalidConfig(FlockError):
    code = 7


class InvalidNetns(FlockError):
    code = 8


class TryAgain(FlockError):
    code = 11
    retry = True


class AddressInUse(TryAgain):
    pass


class NodeConfigMissing(TryAgain):
    pass


class AgentUnavailable(FlockError):
    code = 50
    retry = True


class FlockFailure(FlockError):
    code = 100


class PoolExhausted(FlockFailure):
    code = 101
    retry = True


class AddressRefused(FlockFailure):
    code = 102


class AlreadyAttached(FlockFailure):
    code = 103


class CheckFailed(FlockFailure):
    code = 104
