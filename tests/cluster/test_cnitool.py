import json
import os
import time
from collections.abc import Iterator
from ipaddress import ip_interface
from typing import Any

import pytest
from tests.cluster.cnitool import Cnitool
from tests.cluster.ground import Ground

from flock.model.family import FAMILIES
from flock.model.ownership import ALIVE_FILE, CNI_BIN_DIR, SHIM_NAME
from flock_lab.trace import ping

pytestmark = pytest.mark.cluster


@pytest.fixture
def netns(cnitool: Cnitool) -> Iterator[str]:
    """A namespace as a runtime would make one; the node is as before when the test is over."""
    before = Ground.seen(cnitool.node)
    cnitool.node.run("ip", "netns", "add", "tool")
    yield "tool"
    cnitool.node.run("ip", "netns", "del", "tool")
    before.must_be_as_before(cnitool.node)


def add(cnitool: Cnitool, netns: str) -> dict[str, Any]:
    result = json.loads(cnitool.call("add", netns).stdout)
    assert isinstance(result, dict)
    return result


def test_add_check_and_del_by_libcni(cnitool: Cnitool, netns: str) -> None:
    result = add(cnitool, netns)
    assert result["cniVersion"] == "1.1.0"
    assert [ip_interface(entry["address"]).version for entry in result["ips"]] == [6, 4]
    for family in FAMILIES:
        assert ping(cnitool.node, cnitool.node.plan.address(family), netns=netns).received == 1
    cnitool.call("check", netns)
    cnitool.call("del", netns)
    cnitool.call("del", netns)


def test_check_tells_of_an_address_that_a_stranger_removed(cnitool: Cnitool, netns: str) -> None:
    result = add(cnitool, netns)
    address = result["ips"][0]["address"]
    cnitool.node.run("ip", "address", "del", address, "dev", "eth0", netns=netns)
    done = cnitool.call("check", netns, check=False)
    assert done.returncode != 0
    assert address.partition("/")[0] in done.stderr + done.stdout
    cnitool.call("del", netns)


def test_a_second_add_is_refused_and_the_first_stays_intact(cnitool: Cnitool, netns: str) -> None:
    add(cnitool, netns)
    assert cnitool.call("add", netns, check=False).returncode != 0
    cnitool.call("check", netns)
    cnitool.call("del", netns)


def test_gc_of_everything_by_libcni(cnitool: Cnitool, netns: str) -> None:
    add(cnitool, netns)
    cnitool.call("gc", netns)
    assert cnitool.call("check", netns, check=False).returncode != 0


def test_status_by_libcni(cnitool: Cnitool, netns: str) -> None:
    node = cnitool.node
    assert cnitool.call("status", netns, check=False).returncode == 0
    node.kill_agent()
    assert cnitool.call("status", netns, check=False).returncode == 0, "a restart is no outage"
    minute = time.time() - 61
    os.utime(node.path(ALIVE_FILE), (minute, minute))
    assert cnitool.call("status", netns, check=False).returncode != 0
    node.start_agent()
    node.wait_ready()


def test_version_by_the_shim_itself(cnitool: Cnitool) -> None:
    shim = str(CNI_BIN_DIR / SHIM_NAME)
    done = cnitool.node.run(shim, input='{"cniVersion":"1.1.0"}', env={"CNI_COMMAND": "VERSION"})
    assert json.loads(done.stdout)["supportedVersions"] == ["0.3.1", "0.4.0", "1.0.0", "1.1.0"]
