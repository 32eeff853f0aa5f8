"""NodeConfigs that both the agent's parser and the API server must take, and such that both must refuse.

Each is a change of a good one: dotted paths to new values, ``GONE`` to take a field away. ``spec.bgp.peers.0.name`` is
the first peer's name.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

Change = Mapping[str, object]

GONE = object()
LONG_LABEL = "a" * 254


def node_config(change: Change | None = None) -> dict[str, Any]:
    """A NodeConfig with every field, changed."""
    thing: dict[str, Any] = {
        "apiVersion": "flock.fritzlab.net/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "node-a"},
        "spec": {
            "cidr6": ["2001:db8:0:1::/64"], "cidr4": ["10.64.1.0/24"],
            "defaults": {"ipv6": True, "ipv4": True, "ipAlgo": "namespace=6,pod=5,image=4"},
            "mtu": 1500, "reuseDelay": "120s", "masquerade4": False, "hostRoutes": ["2001:db8:0:1:f::/80"],
            "anycast": [{"cidr": "2001:db8:53::/64", "namespaceSelector": {"matchLabels": {"dns": "true"}}}],
            "bgp": {
                "asn": 64513, "routerID": "192.0.2.11", "mesh": False,
                "peers": [
                    {"name": "tor-a", "address": "fe80::1", "interface": "eth0", "asn": 64512,
                     "passwordSecretRef": {"name": "tor", "key": "md5"}, "families": ["ipv6", "ipv4"],
                     "gracefulRestart": {"restartTime": "120s"}, "localPref": 100,
                     "communities": ["64513:100", "64513:1:2"], "import": "none"},
                    {"name": "tor-b", "address": "2001:db8::2", "asn": 64512, "multihop": 2,
                     "bfd": {"interval": "300ms", "multiplier": 3}},
                ],
            },
        },
    }
    for path, value in (change or {}).items():
        _set(thing, path.split("."), copy.deepcopy(value) if value is not GONE else GONE)
    return thing


def _set(thing: Any, words: Sequence[str], value: object) -> None:  # noqa: ANN401 - JSON
    at: int | str = int(words[0]) if isinstance(thing, list) else words[0]
    if len(words) > 1:
        _set(thing[at], words[1:], value)
    elif value is GONE:
        del thing[at]
    elif isinstance(thing, list) and at == len(thing):
        thing.append(value)
    else:
        thing[at] = value


def _each(path: str, *values: object) -> list[Change]:
    return [{path: value} for value in values]


def _alone(field: str, *values: object) -> list[Change]:
    """CIDRs of the node, without what must fit them."""
    return [{f"spec.{field}": value, "spec.hostRoutes": GONE, "spec.anycast": GONE} for value in values]


PEER = "spec.bgp.peers.0"
OTHER = "spec.bgp.peers.1"


def _peer(field: str, *values: object) -> list[Change]:
    return _each(f"{PEER}.{field}", *values)


def _requirement(key: object, operator: object, *more: object) -> Change:
    values = {"values": more[0]} if more else {}
    return {"spec.anycast.0.namespaceSelector":
            {"matchExpressions": [{"key": key, "operator": operator, **values}]}}


GOOD: Sequence[Change] = [
    {},
    {"spec": {}},
    {"spec.cidr4": GONE},
    {"spec.cidr4": []},
    {"spec.cidr6": GONE, "spec.hostRoutes": GONE},
    {"metadata.name": "worker-1.rack2.example.org"},
    {"metadata.labels": {"x": "y"}, "metadata.annotations": {"x": "y"}},
    *_alone("cidr6", ["2001:DB8::/32"], ["2001:db8::1/64"], ["2001:db8::/128"], ["2001:db8:1::/64", "2001:db8:2::/64"],
            ["2000::/3"], ["fd00::/8"], ["64:ff9b::/96"], ["2001:db8::192.0.2.1/128"], ["2001:db8:0:1:2:3:4::/128"],
            ["::fffe:0:0/96"], ["::8000:0:0/97"], [f"2001:db8:{number:x}::/64" for number in range(32)]),
    *_alone("cidr4", ["10.64.1.7/24"], ["192.0.2.1/32"], ["10.0.0.0/8", "172.16.0.0/12"], ["1.0.0.0/8"],
            ["223.255.255.0/24"], ["169.253.0.0/16"], ["128.0.0.0/3"]),
    *_each("spec.defaults", {}, {"ipv6": False}, {"ipv4": False}, {"ipv6": False, "ipv4": True}),
    *_each("spec.defaults.ipAlgo", "", "  ", "namespace", "namespace,pod,image", "namespace=31", "0xab,pod=5",
           "0xab=4 , node , serviceaccount", "0x1,0x1", " namespace = 06 ,pod", "0x" + "a" * 31,
           ",".join(["0x1"] * 8), "serviceaccount,node,image,pod,namespace", "pod=1,0xaaaa=27, node ,image=2"),
    *_each("spec.mtu", 1280, 9000, 65535),
    {"spec.mtu": 576, "spec.cidr6": [], "spec.hostRoutes": []},
    {"spec.mtu": 576, "spec.cidr6": GONE, "spec.hostRoutes": GONE},
    *_each("spec.reuseDelay", "0", "0s", "24h", "1h30m", "1.5h", "300ms", "1us", "1µs", "86400s", "1h1m1s"),
    *_each("spec.masquerade4", True),
    *_each("spec.hostRoutes", [], ["10.64.1.128/25"], ["2001:db8:0:1::/64", "10.64.1.0/24"], ["10.64.1.1/32"] * 2,
           ["2001:db8:0:1::1/64"], ["10.64.1.0/24"] * 128),
    *_each("spec.anycast", [], [{"cidr": "192.0.2.53/32"}], [{"cidr": "2001:db8:53::1/64"}] * 2,
           [{"cidr": "2001:db8:53::/64", "namespaceSelector": {}}]),
    _requirement("a", "In", ["x"]), _requirement("a", "NotIn", ["x", ""]), _requirement("a", "Exists"),
    _requirement("", "DoesNotExist", []), _requirement("a", "Exists", []),
    {"spec.anycast.0.namespaceSelector": {"matchLabels": {}, "matchExpressions": []}},
    {"spec.bgp": {"asn": 1}},
    *_each("spec.bgp.asn", 4294967294, 65534, 65536, 64512),
    *_each("spec.bgp.routerID", GONE, "1.0.0.1", "223.255.255.255", "240.0.0.1", "169.254.1.1"),
    *_each("spec.bgp.peers", []),
    {"spec.bgp.peers": [{"name": f"p{n}", "address": f"192.0.2.{n + 1}", "asn": 1} for n in range(64)]},
    *_peer("name", "a", "Core switch, rack 7 (äöü ☃ 漢)", "x" * 253, "\\ ' `", "e\u0301"),
    *_peer("address", "FE80::1", "2001:db8::9", "192.0.2.1", "169.254.0.1", "10.0.0.1", "fd00::1", "fe80::1%eth0",
           "2001:db8::9%eth0", "64:ff9b::1.2.3.4"),
    {f"{PEER}.address": "fe80::1%bond0.100", f"{PEER}.interface": GONE},
    {f"{PEER}.address": "192.0.2.1%eth0", f"{PEER}.interface": GONE},
    {f"{PEER}.address": "192.0.2.1", f"{PEER}.interface": GONE},
    {f"{PEER}.address": "2001:db8::2"},  # the other has no interface: two sessions
    {f"{OTHER}.address": "fe80::1", f"{OTHER}.interface": "eth1", f"{OTHER}.multihop": GONE},
    *_peer("interface", "a", "enp3s0f0np0", "br-1+2@x~=,y", "x" * 15, "...", "%eth0"[1:]),
    *_peer("asn", 1, 64513, 4294967294),
    *_peer("passwordSecretRef", {"name": "a.b-c", "key": "A_b.c-1"}, {"name": "x" * 253, "key": "y" * 253}),
    *_peer("families", GONE, ["ipv4"], ["ipv6"], ["ipv4", "ipv6"]),
    *_peer("gracefulRestart", {}, {"restartTime": "1s"}, {"restartTime": "4095s"}, {"restartTime": "1h8m15s"},
           {"restartTime": "2000ms"}),
    *_peer("bfd", {}, {"interval": "10ms"}, {"interval": "1m"}, {"multiplier": 1}, {"multiplier": 255}),
    *_each(f"{OTHER}.multihop", 1, 255, GONE),
    *_peer("localPref", 0, 4294967295),
    *_peer("communities", [], ["0:0"], ["65535:65535"], ["4294967295:0:4294967295"], ["0000000001:2"],
           ["1:2", "1:2"], ["1:2"] * 64),
    *_peer("import", "default-route", "all"),
    {"status": {"conditions": []}},
    # ``null`` is the same as absent.
    *_each("spec.mtu", None), *_each("spec.bgp", None), *_peer("families", None),
    {"spec.cidr6": None, "spec.hostRoutes": None}, {f"{PEER}.interface": None, f"{PEER}.address": "192.0.2.9"},
]

BAD: Sequence[Change] = [
    {"spec": GONE},
    {"spec": None},
    {"spec.bgp.asn": None},
    {f"{PEER}.name": None},
    {f"{PEER}.interface": None},
    {"spec": []},
    {"spec": "x"},
    {"kind": "NodeConfigs"},
    {"apiVersion": "flock.fritzlab.net/v1"},
    {"metadata.name": "Node_A"},
    {"metadata.name": LONG_LABEL},
    {"metadata.name": GONE},
    {"spec.cdir6": []},
    {"specs": {}},
    {"spec.bgp.peer": []},
    {f"{PEER}.adress": "x"},
    {f"{PEER}.bfd": {"intervall": "1s"}},
    {"spec.defaults.ipalgo": ""},
    {"spec.anycast.0.namespaceSelector.matchLabel": {}},
    *_alone("cidr6", ["10.0.0.0/8"], ["2001:db8::"], ["2001:db8::/129"], ["2001:db8::/-1"], ["2001:db8::/064"],
            ["::/0"], ["::/64"], ["::1/128"], ["::/128"], ["::ffff:10.0.0.0/104"], ["::ffff:0:0/95"],
            ["::8000:0:0/81"], ["fe80::/64"], ["fe00::/7"], ["ff02::/16"], ["e000::/3"], ["8000::/1"],
            ["2001:db8::/64", "2001:db8::/64"], ["2001:db8::/32", "2001:db8:1::/64"],
            ["2001:db8:1::/64", "2001:DB8::/32"], [" 2001:db8::/64"], ["2001:db8::/64 "], ["2001:db8::%eth0/64"],
            [""], ["/"], ["x"], [1], [None], [["2001:db8::/64"]], "2001:db8::/64", {}, 1,
            [f"2001:db8:{number:x}::/64" for number in range(33)], ["2001:db8::/64" + " " * 50]),
    *_alone("cidr4", ["2001:db8::/64"], ["0.0.0.0/0"], ["0.1.0.0/16"], ["127.0.0.0/8"], ["127.1.0.0/16"],
            ["169.254.0.0/16"], ["169.0.0.0/8"], ["224.0.0.0/4"], ["239.1.1.0/24"], ["240.0.0.0/8"],
            ["255.255.255.255/32"], ["0.0.0.0/1"], ["10.0.0.0/33"], ["10.0.0.0/255.0.0.0"], ["10.0.0/24"],
            ["010.0.0.0/8"], ["10.0.0.0/24", "10.0.0.128/25"], ["10.0.0.5/24", "10.0.0.0/24"], ["10.0.0.0/08"]),
    *_each("spec.defaults", {"ipv6": False, "ipv4": False}, [], "x"),
    *_each("spec.defaults.ipv6", "true", 1),
    *_each("spec.defaults.ipAlgo", "name", "namespace,namespace", "namespace=0", "namespace=32", "namespace=16,pod=16",
           "namespace=", "=4", "namespace,", ",", "0x", "0xAB", "0xabc=2", "0xg", "0x" + "a" * 32, "namespace=6=5",
           "namespace;pod", ",".join(["0x1"] * 9), "namespace=-1", "pod=+5", "0x" + "a" * 20 + "," + "0x" + "b" * 12,
           "namespace" + " " * 250, "pod" * 200, 5, "pod,namespace=3,pod", "pod =3 , image , pod",
           "0xab,node,0xcd,node=3"),
    *_each("spec.mtu", 1279, 0, -1, 65536, "1500", True, 1500.5),
    {"spec.mtu": 575, "spec.cidr6": GONE, "spec.hostRoutes": GONE},
    *_each("spec.reuseDelay", "", "120", 120, "-1s", "24h1s", "1d", "1s ", "s", "1.s", ".5s", "1ns", "999999999h",
           "86400.000000001s", "1s" * 40),
    *_each("spec.masquerade4", "false", 0, []),
    *_each("spec.hostRoutes", ["2001:db8:0:2::/80"], ["2001:db8::/32"], ["10.64.1.0/23"], ["10.64.1.1"], ["x"], [""],
           ["::ffff:10.64.1.0/120"], "10.64.1.0/24", [1], ["10.64.1.0/24"] * 129),
    {"spec.cidr6": [], "spec.cidr4": [], "spec.hostRoutes": ["10.64.1.0/24"]},
    *_each("spec.anycast", [{}], [{"cidr": "2001:db8:0:1::/80"}], [{"cidr": "2001:db8::/32"}],
           [{"cidr": "10.64.1.1/32"}], [{"cidr": "::/0"}], [{"cidr": "0.0.0.0/0"}], [{"cidr": "ff02::1/128"}],
           [{"cidr": "fe80::1/128"}],
           [{"cidr": "127.0.0.1/32"}], [{"cidr": "2001:db8:53::1"}], [{"cidr": 53}], ["2001:db8:53::/64"], {},
           [{"cidr": "2001:db8:53::/64"}] * 33),
    _requirement("a", "In"), _requirement("a", "NotIn", []), _requirement("a", "Exists", ["x"]),
    _requirement("a", "Is", ["x"]), _requirement("a", "in", ["x"]), _requirement(1, "Exists"),
    _requirement("a", "In", [1]), _requirement("a", "In", "x"), _requirement("a", "In", ["x"] * 257),
    *_each("spec.anycast.0.namespaceSelector", [], "x", {"matchLabels": []}, {"matchLabels": {"a": 1}},
           {"matchExpressions": [{}]}, {"matchExpressions": [{"operator": "Exists"}]}),
    *_each("spec.bgp", [], {}, "x"),
    *_each("spec.bgp.asn", GONE, 0, 23456, 65535, 4294967295, 4294967296, -1, "64513", "1.1", 64513.5),
    *_each("spec.bgp.routerID", "0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "255.255.255.255", "2001:db8::1", "1",
           "192.0.2", "192.0.2.011", "", 1, "::ffff:1.2.3.4"),
    *_each("spec.bgp.mesh", "yes", 1),
    *_each("spec.bgp.peers", {}, ["tor"], [{}]),
    {"spec.bgp.peers": [{"name": f"p{n}", "address": f"192.0.2.{n + 1}", "asn": 1} for n in range(65)]},
    {f"{OTHER}.name": "tor-a"},
    {f"{OTHER}.address": "FE80:0::1", f"{OTHER}.interface": "eth0", f"{OTHER}.multihop": GONE},
    {f"{OTHER}.address": "fe80::1%eth0", f"{OTHER}.multihop": GONE},
    {f"{PEER}.address": "2001:DB8::2", f"{PEER}.interface": GONE},
    *_peer("name", GONE, "", 1, "x" * 254, 'a"b', "a\nb", "a\x00b", "a\x7fb", " ", "   ", "a\u00a0b", "\u200b",
           "a\u2028b", "\ue000"),
    *_peer("address", GONE, "", "x", 1, "::", "::1", "0.0.0.0", "127.0.0.1", "ff02::1", "224.0.0.5", "240.0.0.1",
           "255.255.255.255", "0.1.2.3", "::ffff:192.0.2.1", "192.0.2.01", "192.0.2.1/32", "fe80::1%eth1", "fe80::1%",
           "fe80::1%a%b", "fe80::1%eth0 ", "%eth0", " fe80::1", "fe80::1%" + "x" * 60, "[fe80::1]", "tor.example.org"),
    *_peer("interface", GONE, "", ".", "..", "a b", "a/b", "a:b", "eth%d", "x" * 16, "eth0\n", "ä", 'a"b', "a*", 1),
    {f"{PEER}.address": "169.254.0.1", f"{PEER}.interface": GONE},
    {f"{PEER}.address": "fe80::1%..", f"{PEER}.interface": GONE},
    {f"{PEER}.address": "fe80::1%a/b", f"{PEER}.interface": GONE},
    *_peer("asn", GONE, 0, 23456, 65535, 4294967295, "64512", True),
    *_peer("passwordSecretRef", {}, {"name": "a"}, {"key": "b"}, {"name": "A", "key": "b"}, {"name": "-a", "key": "b"},
           {"name": "a", "key": "b/c"}, {"name": "a", "key": ""}, {"name": "", "key": "b"}, "a/b",
           {"name": "x" * 254, "key": "b"}, {"name": "a", "key": "y" * 254}),
    *_peer("families", [], ["ipv5"], ["IPv6"], ["ipv6", "ipv6"], "ipv6", [6], ["ipv6", "ipv4", "ipv6"]),
    *_peer("gracefulRestart", [], True, {"restartTime": "0s"}, {"restartTime": "4096s"}, {"restartTime": "1.5s"},
           {"restartTime": 120}, {"restartTime": "1500ms"}, {"restartTime": "0"}),
    *_peer("bfd", True, {"interval": "9ms"}, {"interval": "61s"}, {"interval": 300}, {"multiplier": 0},
           {"multiplier": 256}, {"multiplier": "3"}),
    *_each(f"{OTHER}.multihop", 0, 256, "2", True),
    *_peer("multihop", 2),
    {f"{OTHER}.address": "fe80::2%eth0"},
    {f"{OTHER}.interface": "eth0"},
    *_peer("localPref", -1, 4294967296, "100"),
    *_peer("communities", ["1"], ["1:2:3:4"], ["65536:1"], ["1:65536"], ["4294967296:1:1"], ["1:2:4294967296"],
           ["a:b"], ["1:"], [":1"], [""], ["1:2 "], ["12345678901:1"], [1], "1:2", ["1:2"] * 65, ["-1:2"]),
    *_peer("import", "", "None", "default", True),
]

STRICTER: Sequence[Change] = [
    # White space that isn't a space.
    {"spec.defaults.ipAlgo": "namespace,\tpod"},
]
"""What the agent takes and the API server doesn't: harmless, and each with its reason."""
