"""The CRD that is handed out is the one that the code makes, and its limits are those of the parser."""

from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from flock.api.crd import node_config_crd
from flock.api.node_config import parse_node_config
from flock.cli.crd import crd

DEPLOYED = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes" / "crd.yaml"


def _spec() -> dict[str, Any]:
    version: Any = node_config_crd()["spec"]
    schema = version["versions"][0]["schema"]["openAPIV3Schema"]
    return dict(schema["properties"]["spec"]["properties"])


def test_the_deployed_file_is_what_the_command_prints() -> None:
    assert CliRunner().invoke(crd).output == DEPLOYED.read_text()
    assert yaml.safe_load(DEPLOYED.read_text()) == node_config_crd()


def test_every_field_that_the_parser_knows_is_in_the_schema() -> None:
    peer = {"name": "tor", "address": "fe80::1", "interface": "eth0", "asn": 64512, "families": ["ipv6"],
            "passwordSecretRef": {"name": "s", "key": "k"}, "gracefulRestart": {"restartTime": "120s"},
            "bfd": {"interval": "300ms", "multiplier": 3}, "localPref": 100, "communities": ["64513:100"],
            "import": "none"}
    spec: dict[str, Any] = {
        "cidr6": ["2001:db8::/64"], "cidr4": ["10.64.1.0/24"], "defaults": {"ipv6": True, "ipv4": True, "ipAlgo": ""},
        "mtu": 1500, "reuseDelay": "120s", "masquerade4": False, "hostRoutes": ["2001:db8::/80"],
        "anycast": [{"cidr": "2001:db8:53::/64", "namespaceSelector": {"matchLabels": {"dns": "true"}}}],
        "bgp": {"asn": 64513, "routerID": "192.0.2.11", "mesh": False, "peers": [peer]},
    }
    raw = {"apiVersion": "flock.fritzlab.net/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "a"}, "spec": spec}
    parse_node_config(raw, strict=True)
    known = _spec()
    assert known.keys() == spec.keys()
    assert known["bgp"]["properties"].keys() == spec["bgp"].keys()
    assert known["bgp"]["properties"]["peers"]["items"]["properties"].keys() == {*peer, "multihop"}
