"""The manifest of a pair names what there is, and its Service leads to the machine that serves."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker_shim.serve.options import parser as serve_parser
from broker_shim.serve.pair.standby import with_pair
from sparkstore.config import StoreConfig, read_config
from sparkstore.witness.kubernetes import KubernetesPlace

TOP = Path(__file__).parents[2]
LABELS = {"app": "sparkstore-pair"}


@cache
def manifests(file: str = "pair.yaml") -> dict[str, list[dict[str, Any]]]:
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for manifest in yaml.safe_load_all((TOP / "conf/kubernetes" / file).read_text()):
        by_kind.setdefault(manifest["kind"], []).append(manifest)
    return by_kind


def only(kind: str, file: str = "pair.yaml") -> dict[str, Any]:
    (manifest,) = manifests(file)[kind]
    return manifest


def broker() -> dict[str, Any]:
    (container,) = only("StatefulSet")["spec"]["template"]["spec"]["containers"]
    return dict(container)


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    """The settings of the ConfigMap, by the reader that refuses one that is none."""
    ((name, text),) = only("ConfigMap")["data"].items()
    (tmp_path / name).write_text(text)
    return read_config(tmp_path / name)


def test_the_command_line_and_the_settings_are_those_of_a_pair(config: StoreConfig) -> None:
    serve, *words = broker()["args"]
    assert serve == "serve"
    options = serve_parser().parse_args(words)
    assert with_pair(options, config) == config  # a name of the cluster need not resolve here
    mounts = {Path(mount["mountPath"]) for mount in broker()["volumeMounts"]}
    files = (options.config, options.users, options.tls_cert, options.tls_key, options.token_file)
    for path in (options.root, *files, config.peer_ca):
        assert mounts & {*Path(path).parents}
    addresses = (options.listen, options.http, options.metrics_listen, config.standby_listen)
    ports = {int(str(address).rpartition(":")[2]) for address in addresses}
    assert ports == {port["containerPort"] for port in broker()["ports"]}
    services = {manifest["metadata"]["name"]: manifest for manifest in manifests()["Service"]}
    _, host, port = config.peer.split(":")
    assert int(port) in {offered["port"] for offered in services[host]["spec"]["ports"]}
    assert not services[host]["spec"].get("publishNotReadyAddresses")  # who serves, and no other


def test_the_role_is_for_the_lease_of_the_settings_and_no_more(config: StoreConfig) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert KubernetesPlace(config.witness, 1.0, environment).location == config.witness
    name = config.witness.rpartition("/")[2]
    assert only("Lease")["metadata"]["name"] == name
    assert only("Lease")["spec"] == {}
    (rule,) = only("Role")["rules"]
    assert rule == {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": [name],
        "verbs": ["get", "update"],
    }
    (subject,) = only("RoleBinding")["subjects"]
    account = only("ServiceAccount")["metadata"]["name"]
    pod = only("StatefulSet")["spec"]["template"]["spec"]
    assert subject["name"] == account == pod["serviceAccountName"]
    assert only("RoleBinding")["roleRef"]["name"] == only("Role")["metadata"]["name"]
    assert pod["automountServiceAccountToken"]


def test_a_standby_that_is_never_ready_holds_up_nothing() -> None:
    spec = only("StatefulSet")["spec"]
    assert (spec["replicas"], spec["podManagementPolicy"]) == (2, "Parallel")
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    probes = {
        name: broker()[name]["httpGet"]["path"] for name in ("livenessProbe", "readinessProbe")
    }
    assert probes == {"livenessProbe": "/healthz", "readinessProbe": "/primary"}
    pages = (TOP / "docs/http.md").read_text()
    assert all(f"`GET {path}`" in pages for path in probes.values())
    budget = only("PodDisruptionBudget")["spec"]
    assert (budget["minAvailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


def test_all_parts_are_of_these_pods_and_their_ports_exist() -> None:
    spec = only("StatefulSet")["spec"]
    assert spec["template"]["metadata"]["labels"] == LABELS
    assert {manifest["metadata"]["name"] for manifest in manifests()["Service"]} >= {
        spec["serviceName"]
    }
    assert all(manifest["spec"]["selector"] == LABELS for manifest in manifests()["Service"])
    for selector in (
        spec["selector"],
        only("PodDisruptionBudget")["spec"]["selector"],
        only("NetworkPolicy")["spec"]["podSelector"],
    ):
        assert selector == {"matchLabels": LABELS}
    offered = {port["name"] for port in broker()["ports"]}
    for manifest in manifests()["Service"]:
        assert {port["targetPort"] for port in manifest["spec"]["ports"]} <= offered
    rules = only("NetworkPolicy")["spec"]["ingress"]
    assert {port["port"] for rule in rules for port in rule["ports"]} == offered
    (of_the_log,) = [rule for rule in rules if {"port": "standby"} in rule["ports"]]
    assert of_the_log["from"] == [{"podSelector": {"matchLabels": LABELS}}]


def test_the_pods_are_as_locked_as_a_single_one_and_on_two_machines() -> None:
    pod = only("StatefulSet")["spec"]["template"]["spec"]
    single = only("StatefulSet", "sparkstore.yaml")["spec"]["template"]["spec"]
    same = ("securityContext", "terminationGracePeriodSeconds")
    assert [pod[key] for key in same] == [single[key] for key in same]
    (other,) = single["containers"]
    for container in (*pod["containers"], *pod["initContainers"]):
        assert container["securityContext"] == other["securityContext"]
        assert container["image"] == other["image"]
    volumes = {volume["name"] for volume in pod["volumes"]} | {"queues"}
    for container in (*pod["containers"], *pod["initContainers"]):
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert apart["labelSelector"] == {"matchLabels": LABELS}


def test_the_example_for_systemd_is_settings_and_a_command_line_of_a_pair() -> None:
    file = TOP / "conf/systemd/pair.toml"
    text = file.read_text().replace("\\\n#", " ")
    (line,) = [line for line in text.splitlines() if "sparkstore serve ${ROOT}" in line]
    words = line.partition(" serve ")[2]
    for name, value in {
        "ROOT": "/queues",
        "LISTEN": "0.0.0.0:5671",
        "HTTP": "0.0.0.0:8161",
    }.items():
        words = words.replace(f"${{{name}}}", value)
    config = read_config(file)
    assert with_pair(serve_parser().parse_args(words.split()), config) == config
