"""The Containerfile and the Kubernetes manifests name what there is, and agree with each other.

No registry of images is needed: files and command lines in them are judged here, by the command
line's own parser. docs/administrator.md says how an image was built of it.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker_shim.serve.options import parser as serve_parser

TOP = Path(__file__).parents[2]
Manifest = dict[str, Any]


@cache
def instructions() -> list[tuple[str, str]]:
    """Each instruction of the Containerfile with the rest of its line."""
    text = (TOP / "conf/container/Containerfile").read_text()
    lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    split = (line.partition(" ") for line in lines if line)
    return [(name, rest.strip()) for name, _, rest in split]


def last(name: str) -> str:
    return [rest for found, rest in instructions() if found == name][-1]


@cache
def manifests() -> dict[str, list[Manifest]]:
    found: dict[str, list[Manifest]] = {}
    for each in yaml.safe_load_all((TOP / "conf/kubernetes/sparkstore.yaml").read_text()):
        found.setdefault(each["kind"], []).append(each)
    return found


@pytest.fixture
def pod() -> Manifest:
    (found,) = manifests()["StatefulSet"]
    spec: Manifest = found["spec"]["template"]["spec"]
    return spec


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def test_the_containerfile_has_two_stages_and_copies_what_there_is() -> None:
    kinds = [name for name, _ in instructions()]
    known = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE"}
    assert set(kinds) <= known | {"STOPSIGNAL", "ENTRYPOINT", "CMD"}
    assert kinds.count("FROM") == 2
    for name, rest in instructions():
        if name == "COPY" and not rest.startswith("--from=build "):
            for source in rest.split()[:-1]:
                assert (TOP / source).exists(), source
    built = {rest.split()[-1] for name, rest in instructions() if name == "COPY"}
    packaged = {
        "sparkstore",
        "broker_shim",
        "pyspark_sparkstore",
        "jobs",
        "conf",
        "/opt/sparkstore",
    }
    assert packaged <= built


def test_the_image_runs_a_broker_as_a_user_that_is_not_root() -> None:
    user = last("USER")
    assert user.split(":")[0] not in {"0", "root"}
    made = " ".join(rest for name, rest in instructions() if name == "RUN")
    uid, gid = user.split(":")
    assert f"--uid {uid} --gid {gid} " in made
    assert json.loads(last("ENTRYPOINT")) == ["sparkstore"]
    serve, *words = json.loads(last("CMD"))
    options = serve_parser().parse_args(words)
    assert serve == "serve"
    assert Path(options.root).is_relative_to(last("VOLUME"))
    ports = {port_of(options.listen), port_of(options.metrics_listen)}
    assert {int(port) for port in last("EXPOSE").split()} == ports


def test_the_names_of_the_manifests_agree(pod: Manifest) -> None:
    (stateful_set,) = manifests()["StatefulSet"]
    labels = stateful_set["spec"]["template"]["metadata"]["labels"]
    (budget,) = manifests()["PodDisruptionBudget"]
    selectors = [each["spec"]["selector"] for each in manifests()["Service"]]
    matched = [each["spec"]["selector"]["matchLabels"] for each in (stateful_set, budget)]
    assert all(each == labels for each in (*selectors, *matched))
    services = {each["metadata"]["name"]: each for each in manifests()["Service"]}
    governing = services[stateful_set["spec"]["serviceName"]]
    assert governing["spec"]["clusterIP"] == "None"
    (broker,) = pod["containers"]
    offered = {port["name"] for port in broker["ports"]}
    asked = {port["targetPort"] for each in services.values() for port in each["spec"]["ports"]}
    assert asked <= offered
    claims = stateful_set["spec"]["volumeClaimTemplates"]
    volumes = {each["name"] for each in pod["volumes"]}
    volumes |= {each["metadata"]["name"] for each in claims}
    for container in (broker, *pod["initContainers"]):
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        assert container["image"] == broker["image"]


def test_the_pod_runs_what_the_image_can_and_is_asked_where_it_answers(pod: Manifest) -> None:
    (broker,) = pod["containers"]
    serve, *words = broker["args"]
    options = serve_parser().parse_args(words)
    assert serve == "serve"
    ports = {port["name"]: port["containerPort"] for port in broker["ports"]}
    asked = {"amqps": options.listen, "https": options.http, "metrics": options.metrics_listen}
    assert ports == {name: port_of(address) for name, address in asked.items()}
    mounts = {Path(each["mountPath"]) for each in broker["volumeMounts"]}
    for path in (options.root, options.users, options.tls_cert, options.tls_key):
        assert mounts & {*Path(path).parents}
    assert Path(last("VOLUME")) in mounts
    help_text = " ".join(serve_parser().format_help().split())
    for probe in ("livenessProbe", "readinessProbe"):
        asked_at = broker[probe]["httpGet"]
        assert (asked_at["port"], asked_at["scheme"]) == ("https", "HTTPS")
        assert f"{asked_at['path']}" in help_text.partition("serve a console, REST")[2]


def test_the_pod_has_no_rights_and_one_store_at_a_time(pod: Manifest) -> None:
    uid, gid = map(int, last("USER").split(":"))
    context = pod["securityContext"]
    assert (context["runAsUser"], context["fsGroup"], context["runAsNonRoot"]) == (uid, gid, True)
    for container in (*pod["containers"], *pod["initContainers"]):
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["readOnlyRootFilesystem"]
    (stateful_set,) = manifests()["StatefulSet"]
    assert stateful_set["spec"]["replicas"] == 1
    unit = (TOP / "conf/systemd/sparkstore@.service").read_text()
    assert f"TimeoutStopSec={pod['terminationGracePeriodSeconds']}\n" in unit
