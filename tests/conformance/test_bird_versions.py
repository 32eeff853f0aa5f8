"""The configuration that flock writes, judged by every version of BIRD that it supports.

`make conformance` makes the roots (`scripts/setup bird-versions`); each BIRD runs in its own, with its own libc.
"""

import os
import subprocess
import tempfile
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from flock.api.node_config import parse_node_config
from flock.routing.bird_config import bird_inputs, render_bird

pytestmark = pytest.mark.versions

CACHE = Path(os.environ.get("FLOCK_CACHE", "/var/cache/flock"))
VERSIONS = ("2.0", "2.17", "3.1", "3-newest")

PLAIN = {"name": "tor", "address": "2001:db8::1", "asn": 64512}
PEERS: dict[str, list[dict[str, object]]] = {
    "no peer": [],
    "ebgp over IPv6": [PLAIN],
    "ebgp over IPv4": [PLAIN | {"address": "192.0.2.1"}],
    "ibgp": [PLAIN | {"asn": 64513}],
    "link-local": [PLAIN | {"address": "fe80::1", "interface": "bond0.100"}],
    "one family": [PLAIN | {"families": ["ipv6"]}],
    "import all": [PLAIN | {"import": "all", "localPref": 200}],
    "import default": [PLAIN | {"import": "default-route"}],
    "communities": [PLAIN | {"communities": ["64513:100", "4200000000:1:2"]}],
    "graceful restart": [PLAIN | {"gracefulRestart": {"restartTime": "60s"}}],
    "bfd": [PLAIN | {"bfd": {"interval": "100ms", "multiplier": 5}}],
    "multihop": [PLAIN | {"multihop": 4}],
    "two, and a name for people": [PLAIN, PLAIN | {"name": "Rack 7, oben/links; étage 2 #1", "address": "2001:db8::2"}],
}
SPEC = {
    "cidr6": ["2001:db8:0:1::/64"],
    "cidr4": ["10.64.1.0/24", "10.65.0.0/31"],
    "hostRoutes": ["2001:db8:0:1:f::/80", "10.65.0.0/31"],
    "anycast": [{"cidr": "2001:db8:53::/64"}],
}


@pytest.fixture(scope="module", params=VERSIONS)
def root(request: pytest.FixtureRequest) -> Path:
    root = CACHE / f"bird-{request.param}"
    if not (root / "usr/sbin/bird").exists():
        pytest.fail(f"{root} has no BIRD: scripts/setup bird-versions")
    return root


def rendered(peers: list[dict[str, object]]) -> str:
    raw = {
        "apiVersion": "flock.fritzlab.net/v1alpha1",
        "kind": "NodeConfig",
        "metadata": {"name": "node-1"},
        "spec": SPEC | {"bgp": {"asn": 64513, "peers": peers}},
    }
    config = render_bird(bird_inputs(parse_node_config(raw, strict=True), IPv4Address("192.0.2.11")))
    assert config.refused == {}
    return config.text


def judged(root: Path, text: str) -> subprocess.CompletedProcess[str]:
    # The root has no /proc, so no /dev/stdin: a file.
    with tempfile.NamedTemporaryFile("w", dir=root / "tmp", suffix=".conf") as file:
        file.write(text)
        file.flush()
        command = ["chroot", str(root), "bird", "-p", "-c", f"/tmp/{Path(file.name).name}"]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)


@pytest.mark.parametrize("peers", PEERS.values(), ids=PEERS.keys())
def test_bird_takes_what_flock_writes(root: Path, peers: list[dict[str, object]]) -> None:
    done = judged(root, rendered(peers))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_judge_is_awake(root: Path) -> None:
    done = judged(root, rendered([PLAIN]).replace("protocol bgp", "protocol gbp"))
    assert done.returncode != 0
    assert "syntax error" in done.stderr
