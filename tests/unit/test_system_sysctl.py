"""Settings of the kernel by name, dots in interface names included."""

import pytest

from flock.errors import IOFailure
from flock.system.sysctl import ensure_sysctl, read_sysctl, sysctl_path, write_sysctl
from flock_lab.netns import Netns


@pytest.mark.parametrize(("name", "path"), [
    ("net.ipv4.ip_forward", "/proc/sys/net/ipv4/ip_forward"),
    ("net/ipv6/conf/bond0.100/accept_ra", "/proc/sys/net/ipv6/conf/bond0.100/accept_ra"),
])
def test_both_spellings(name: str, path: str) -> None:
    assert str(sysctl_path(name)) == path


@pytest.mark.parametrize("name", ["", "net..x", "net/../../etc/passwd", "/net/ipv4", "net.ipv4."])
def test_a_name_never_leaves_its_folder(name: str) -> None:
    with pytest.raises(ValueError, match="is not a sysctl name"):
        sysctl_path(name)


def test_what_isnt_there_is_none_and_cant_be_set() -> None:
    assert read_sysctl("net.ipv4.no_such_thing") is None
    with pytest.raises(IOFailure, match="no_such_thing can't be set to 1"):
        write_sysctl("net.ipv4.no_such_thing", 1)


@pytest.mark.kernel
def test_a_setting_is_written_only_when_it_differs() -> None:
    def body() -> list[bool | str | None]:
        write_sysctl("net.ipv4.ip_forward", 0)
        return [ensure_sysctl("net.ipv4.ip_forward", 1), ensure_sysctl("net.ipv4.ip_forward", 1),
                read_sysctl("net.ipv4.ip_forward")]

    with Netns.create() as netns:
        assert netns.run(body) == [True, False, "1"]
