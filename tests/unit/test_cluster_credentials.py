"""Credentials: kubeconfig files of every sort, what a pod is given, and how both change under a running agent."""

import base64
import json
import os
import ssl
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from flock.cluster.access import ClusterAccess, TokenFile
from flock.cluster.client import ApiClient
from flock.cluster.credentials import in_cluster, load_kubeconfig
from flock.cluster.errors import ApiForbidden, ApiUnreachable
from flock.cluster.tls import Tls, TlsSettings
from flock.errors import InvalidConfig, IOFailure, TryAgain
from flock.system.clock import SystemClock
from flock.testing.api_server import ApiServer
from flock.testing.certificates import Authority, Pair
from flock.testing.clock import ManualClock

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(user: object, cluster: dict[str, object] | None = None, **top: object) -> Path:
        path = tmp_path / "config"
        path.write_text(yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.1:6443", **(cluster or {})}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            **top,
        }))
        return path

    return write


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def server_pair(authority: Authority) -> Pair:
    return authority.issue("api", "IP:127.0.0.1", "DNS:api.test")


def server_tls(pair: Pair, clients: Authority | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients.certificate)
    return context


# Kubeconfig


async def test_a_token_becomes_a_header(write: Write) -> None:
    access = load_kubeconfig(write({"token": "secret"}))
    assert access.server == "https://192.0.2.1:6443"
    assert await access.authorization() == "Bearer secret"


async def test_a_token_file_counts_from_the_kubeconfigs_folder_and_wins_over_the_text(
    write: Write, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("from-file\n")
    access = load_kubeconfig(write({"token": "text", "tokenFile": "token"}))
    assert await access.authorization() == "Bearer from-file"


async def test_without_a_user_nobody_is_named(write: Write) -> None:
    path = write({}, contexts=[{"name": "here", "context": {"cluster": "c"}}])
    assert await load_kubeconfig(path).authorization() is None


async def test_another_context_can_be_named(write: Write) -> None:
    path = write({"token": "a"}, contexts=[
        {"name": "here", "context": {"cluster": "c", "user": "u"}},
        {"name": "there", "context": {"cluster": "d", "user": "u"}},
    ], clusters=[{"name": "c", "cluster": {"server": "https://a"}}, {"name": "d", "cluster": {"server": "http://b:1/p/"}}])
    assert load_kubeconfig(path, "there").server == "http://b:1/p"


async def test_json_is_a_kubeconfig_too(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(json.dumps({
        "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": "https://a"}}]}))
    assert load_kubeconfig(path).server == "https://a"


@pytest.mark.parametrize(("user", "cluster", "field", "rule"), [
    ({"token": "a b"}, {}, "users[u].user.token", "one word of printable ASCII"),
    ({"token": "a\nX-Injected: yes"}, {}, "users[u].user.token", "one word"),
    ({"token": 3}, {}, "users[u].user.token", "must be a string"),
    ({"username": "a", "password": "b"}, {}, "users[u].user.username", "is not supported"),
    ({"auth-provider": {"name": "gcp"}}, {}, "users[u].user.auth-provider", "is not supported"),
    ({"as": "admin"}, {}, "users[u].user.as", "is not supported"),
    ({"client-certificate": "x"}, {}, "users[u].user.client-key", "is missing"),
    ({"client-certificate-data": "%%%"}, {}, "users[u].user.client-certificate-data", "must be base64"),
    ({"exec": {"command": "x"}}, {}, "users[u].user.exec.apiVersion", "is required"),
    ({"exec": {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "x"}}, {},
     "users[u].user.exec.apiVersion", "must be one of"),
    ({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x", "interactiveMode": "Always"}}, {},
     "users[u].user.exec.interactiveMode", "needs a terminal"),
    ({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x", "args": "y"}}, {},
     "users[u].user.exec.args", "must be a list of strings"),
    ({}, {"proxy-url": "http://p"}, "clusters[c].cluster.proxy-url", "is not supported"),
    ({}, {"server": ""}, "clusters[c].cluster.server", "is required"),
    ({}, {"server": "ftp://x"}, "clusters[c].cluster.server", "http(s)://HOST"),
    ({}, {"server": "https://user:pw@x"}, "clusters[c].cluster.server", "http(s)://HOST"),
    ({}, {"insecure-skip-tls-verify": "yes"}, "clusters[c].cluster.insecure-skip-tls-verify", "true or false"),
])
def test_what_is_wrong_is_named_by_file_field_and_rule(
    write: Write, user: object, cluster: dict[str, object], field: str, rule: str
) -> None:
    path = write(user, cluster)
    with pytest.raises(InvalidConfig) as caught:
        load_kubeconfig(path)
    text = str(caught.value)
    assert str(path) in text
    assert field in text
    assert rule in text
    assert "\n" not in text


@pytest.mark.parametrize(("top", "field"), [
    ({"current-context": ""}, "current-context"),
    ({"current-context": "gone"}, "contexts has no entry"),
    ({"contexts": [{"name": "here", "context": {"cluster": "nope"}}]}, "clusters has no entry"),
    ({"contexts": [{"name": "here", "context": {"cluster": "c", "user": "nope"}}]}, "users has no entry"),
    ({"contexts": [{"name": "here", "context": None}]}, "contexts[here].context"),
    ({"contexts": "x"}, "contexts has no entry"),
])
def test_a_name_that_leads_nowhere_is_told(write: Write, top: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidConfig, match=field.replace("[", r"\[")):
        load_kubeconfig(write({}, **top))


@pytest.mark.parametrize("text", ["", "a: [", "- 1", "a: 1\n---\nb: 2\n", "\x00"])
def test_a_file_that_is_no_kubeconfig_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(InvalidConfig, match="kubeconfig"):
        load_kubeconfig(path)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(IOFailure, match="doesn't exist"):
        load_kubeconfig(tmp_path / "none")


def test_no_message_shows_a_secret(write: Write) -> None:
    for user in ({"token": "hush hush"}, {"client-key-data": "hush%", "client-certificate": "a"},
                 {"username": "a", "password": "hush"}):
        with pytest.raises(InvalidConfig) as caught:
            load_kubeconfig(write(user))
        assert "hush" not in str(caught.value)


# Exec plugins


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """Counts its runs in ``runs`` and prints ``answer``."""
    path = tmp_path / "plugin"
    path.write_text(f"""#!{sys.executable} -S
import os, sys
here = {str(tmp_path)!r}
with open(f"{{here}}/runs", "a") as file:
    file.write(os.environ["KUBERNETES_EXEC_INFO"] + " " + os.environ.get("EXTRA", "") + " " + sys.argv[1] + "\\n")
sys.stdout.write(open(f"{{here}}/answer").read())
sys.stderr.write("the\\nreason")
sys.exit(int(open(f"{{here}}/code").read()))
""")
    path.chmod(0o755)
    (tmp_path / "code").write_text("0")
    return path


def exec_user(**more: object) -> dict[str, object]:
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin", "args": ["--x"],
                     "env": [{"name": "EXTRA", "value": "more"}], **more}}


def answer(folder: Path, **status: object) -> None:
    (folder / "answer").write_text(json.dumps(
        {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}))


def runs(folder: Path) -> list[str]:
    return (folder / "runs").read_text().splitlines() if (folder / "runs").exists() else []


async def test_a_plugin_is_run_once_and_again_before_its_token_ends(
    write: Write, plugin: Path, tmp_path: Path
) -> None:
    clock = ManualClock()  # 2027-01-15T08:00:00Z
    answer(tmp_path, token="first", expirationTimestamp="2027-01-15T09:00:00Z")
    access = load_kubeconfig(write(exec_user()), clock=clock)
    assert await access.authorization() == "Bearer first"
    assert await access.authorization() == "Bearer first"
    (run,) = runs(tmp_path)
    info, extra, argument = run.rsplit(" ", 2)
    assert json.loads(info) == {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                                "spec": {"interactive": False}}
    assert (extra, argument) == ("more", "--x")
    answer(tmp_path, token="second")
    await clock.advance(3541)
    assert await access.authorization() == "Bearer second"


async def test_a_plugin_is_run_again_after_a_401(write: Write, plugin: Path, tmp_path: Path) -> None:
    answer(tmp_path, token="first")
    access = load_kubeconfig(write(exec_user()))
    assert await access.authorization() == "Bearer first"
    answer(tmp_path, token="second")
    access.refused()
    assert await access.authorization() == "Bearer second"
    assert len(runs(tmp_path)) == 2


async def test_a_plugin_is_told_of_the_cluster_where_it_asks(write: Write, plugin: Path, tmp_path: Path) -> None:
    answer(tmp_path, token="x")
    access = load_kubeconfig(write(exec_user(provideClusterInfo=True), {
        "certificate-authority-data": base64.b64encode(b"pem").decode()}))
    await access.authorization()
    info = json.loads(runs(tmp_path)[0].rsplit(" ", 2)[0])
    assert info["spec"]["cluster"] == {"server": "https://192.0.2.1:6443",
                                       "certificate-authority-data": base64.b64encode(b"pem").decode()}


@pytest.mark.parametrize("printed", [
    "", "{}", "nonsense", '{"kind":"ExecCredential","apiVersion":"other","status":{}}'])
async def test_a_plugin_that_prints_something_else_is_told(
    write: Write, plugin: Path, tmp_path: Path, printed: str
) -> None:
    (tmp_path / "answer").write_text(printed)
    with pytest.raises(IOFailure, match=r"users\[u\].user.exec: what .*plugin printed can't be used"):
        await load_kubeconfig(write(exec_user())).authorization()


@pytest.mark.parametrize("status", [{}, {"token": "a\nb"}, {"token": "x", "expirationTimestamp": "2027-01-15T09:00:00"},
                                    {"clientCertificateData": "x"}])
async def test_a_credential_that_cannot_be_used_is_told_and_not_shown(
    write: Write, plugin: Path, tmp_path: Path, status: dict[str, object]
) -> None:
    answer(tmp_path, **status)
    with pytest.raises(IOFailure, match="status"):
        await load_kubeconfig(write(exec_user())).authorization()


async def test_a_plugin_that_fails_is_tried_again_and_its_reason_told(
    write: Write, plugin: Path, tmp_path: Path
) -> None:
    answer(tmp_path, token="hush")
    (tmp_path / "code").write_text("3")
    access = load_kubeconfig(write(exec_user()))
    with pytest.raises(TryAgain) as caught:
        await access.authorization()
    assert "exit 3" in str(caught.value)
    assert "reason" in str(caught.value)
    assert "hush" not in str(caught.value)
    (tmp_path / "code").write_text("0")
    assert await access.authorization() == "Bearer hush"


# Token files


async def test_a_token_file_that_is_replaced_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    tokens = TokenFile(path, ManualClock(), field="x")
    assert await tokens.token() == "one"
    (tmp_path / "new").write_text("two")
    os.rename(tmp_path / "new", path)
    assert await tokens.token() == "two"


async def test_a_token_file_that_looks_the_same_is_read_each_minute(tmp_path: Path) -> None:
    path, clock = tmp_path / "token", ManualClock()
    path.write_text("one")
    tokens, before = TokenFile(path, clock, field="x"), os.stat(path)
    assert await tokens.token() == "one"
    path.write_text("two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    await clock.advance(59)
    assert await tokens.token() == "one"
    await clock.advance(1)
    assert await tokens.token() == "two"


async def test_a_token_file_that_is_gone_for_a_moment_leaves_the_last_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    tokens = TokenFile(path, ManualClock(), field="service account")
    assert await tokens.token() == "one"
    path.write_text("half a\ntoken")
    assert await tokens.token() == "one"
    path.unlink()
    assert await tokens.token() == "one"
    with pytest.raises(IOFailure, match="service account: the token file"):
        await TokenFile(path, ManualClock(), field="service account").token()


# In a pod


@pytest.mark.parametrize(("host", "url"), [("10.96.0.1", "https://10.96.0.1:443"), ("fd00::1", "https://[fd00::1]:443")])
async def test_a_pods_environment_and_mounts_are_enough(tmp_path: Path, host: str, url: str) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("c")
    access = in_cluster(env={"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}, folder=tmp_path)
    assert access.server == url
    assert await access.authorization() == "Bearer t"


@pytest.mark.parametrize(("env", "files", "text"), [
    ({}, (), "KUBERNETES_SERVICE_HOST is not set"),
    ({"KUBERNETES_SERVICE_HOST": "h"}, (), "KUBERNETES_SERVICE_PORT is not set"),
    ({"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "x"}, (), "must be a port number"),
    ({"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"}, (), "token doesn't exist"),
    ({"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"}, ("token",), "ca.crt doesn't exist"),
])
def test_outside_of_a_pod_what_is_missing_is_named(
    tmp_path: Path, env: dict[str, str], files: tuple[str, ...], text: str
) -> None:
    for name in files:
        (tmp_path / name).write_text("x")
    with pytest.raises(InvalidConfig, match=text):
        in_cluster(env=env, folder=tmp_path)


# TLS


async def ask(access: ClusterAccess) -> bytes:
    client = ApiClient(access, SystemClock())
    try:
        return await client.get("/api/v1/namespaces/default")
    finally:
        await client.close()


async def test_a_server_of_the_right_authority_is_believed(
    write: Write, authority: Authority, server_pair: Pair
) -> None:
    async with ApiServer(tls=server_tls(server_pair)) as api:
        data = base64.b64encode(authority.certificate.read_bytes()).decode()
        access = load_kubeconfig(write({}, {"server": api.url, "certificate-authority-data": data}))
        assert b"default" in await ask(access)


async def test_a_server_of_another_authority_is_not(write: Write, tmp_path: Path, server_pair: Pair) -> None:
    other = Authority(tmp_path / "other")
    async with ApiServer(tls=server_tls(server_pair)) as api:
        access = load_kubeconfig(write({}, {"server": api.url, "certificate-authority": str(other.certificate)}))
        with pytest.raises(ApiUnreachable, match="certificate"):
            await ask(access)


async def test_a_server_of_another_name_is_believed_under_the_name_that_is_set(
    write: Write, authority: Authority
) -> None:
    pair = authority.issue("named", "DNS:api.test")
    async with ApiServer(tls=server_tls(pair)) as api:
        ca = {"server": api.url, "certificate-authority": str(authority.certificate)}
        with pytest.raises(ApiUnreachable, match="certificate"):
            await ask(load_kubeconfig(write({}, ca)))
        assert await ask(load_kubeconfig(write({}, {**ca, "tls-server-name": "api.test"})))


async def test_no_check_is_made_where_none_is_wanted(write: Write, server_pair: Pair) -> None:
    async with ApiServer(tls=server_tls(server_pair)) as api:
        assert await ask(load_kubeconfig(write({}, {"server": api.url, "insecure-skip-tls-verify": True})))


@pytest.mark.parametrize("as_data", [True, False])
async def test_a_client_certificate_is_shown(
    write: Write, authority: Authority, server_pair: Pair, as_data: bool
) -> None:
    pair = authority.issue("agent", organisation="system:masters")
    user: dict[str, object] = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
    if as_data:
        user = {"client-certificate-data": base64.b64encode(pair.certificate.read_bytes()).decode(),
                "client-key-data": base64.b64encode(pair.key.read_bytes()).decode()}
    async with ApiServer(tls=server_tls(server_pair, authority)) as api:
        ca: dict[str, object] = {"server": api.url, "certificate-authority": str(authority.certificate)}
        with pytest.raises(ApiUnreachable):
            await ask(load_kubeconfig(write({}, ca)))
        assert await ask(load_kubeconfig(write(user, ca)))


async def test_a_plugins_certificate_is_shown(
    write: Write, authority: Authority, server_pair: Pair, plugin: Path, tmp_path: Path
) -> None:
    pair = authority.issue("agent")
    answer(tmp_path, clientCertificateData=pair.certificate.read_text(), clientKeyData=pair.key.read_text())
    async with ApiServer(tls=server_tls(server_pair, authority)) as api:
        assert await ask(load_kubeconfig(write(exec_user(), {
            "server": api.url, "certificate-authority": str(authority.certificate)})))


async def test_a_new_authority_is_believed_without_a_restart(tmp_path: Path) -> None:
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    ca = tmp_path / "ca.crt"
    ca.write_bytes(old.certificate.read_bytes())
    tls = Tls(TlsSettings(ca=ca))
    context = tls.context()
    assert tls.context() is context
    async with ApiServer(tls=server_tls(new.issue("api", "IP:127.0.0.1"))) as api:
        client = ApiClient(ClusterAccess(api.url, tls=tls), SystemClock())
        with pytest.raises(ApiUnreachable):
            await client.get("/api/v1/namespaces/default")
        (tmp_path / "next").write_bytes(new.certificate.read_bytes())
        os.rename(tmp_path / "next", ca)
        assert await client.get("/api/v1/namespaces/default")
        await client.close()


def test_files_that_cannot_be_used_leave_the_last_good_context(tmp_path: Path, authority: Authority) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_bytes(authority.certificate.read_bytes())
    tls = Tls(TlsSettings(ca=ca))
    good = tls.context()
    ca.write_text("half")
    assert tls.context() is good
    assert str(ca) in tls.trouble
    ca.unlink()
    assert tls.context() is good
    ca.write_bytes(authority.certificate.read_bytes())
    assert tls.context() is not good
    assert tls.trouble == ""
    with pytest.raises(IOFailure, match="TLS to the API server"):
        Tls(TlsSettings(ca=tmp_path / "none")).context()


async def test_a_401_is_answered_with_fresh_credentials_at_once(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    async with ApiServer() as api:
        api.tokens = {"old": "agent"}
        client = ApiClient(ClusterAccess(api.url, tokens=TokenFile(path, ManualClock(), field="x")), SystemClock())
        assert await client.get("/api/v1/namespaces/default")
        before = os.stat(path)
        path.write_text("new")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        api.tokens = {"new": "agent"}
        assert await client.get("/api/v1/namespaces/default")
        api.tokens = {}
        with pytest.raises(ApiForbidden):
            await client.get("/api/v1/namespaces/default")
        assert [seen.token for seen in api.seen] == ["old", "old", "new", "new"]
        await client.close()


