"""The Kubernetes examples parse, and name nothing that they do not have."""

from pathlib import Path

import pytest
import yaml

KUBERNETES = Path(__file__).parents[2] / "deploy" / "kubernetes"


def specs(document):
    spec = document["spec"]
    return spec["template"]["spec"] if "template" in spec else spec


@pytest.mark.parametrize("path", sorted(KUBERNETES.glob("*.yaml")), ids=lambda path: path.name)
def test_volumes_are_declared_and_kinds_are_whole(path):
    documents = list(yaml.safe_load_all(path.read_text()))
    assert documents
    for document in documents:
        assert {"apiVersion", "kind", "metadata", "spec"} <= set(document)
        pod = specs(document)
        containers = pod.get("containers", []) + pod.get("initContainers", [])
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        for container in containers:
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
            assert all(isinstance(word, str) for word in container["command"]), container["command"]


def test_the_service_has_the_collectors_ports():
    service = next(yaml.safe_load_all((KUBERNETES / "sidecar.yaml").read_text()))
    assert [port["port"] for port in service["spec"]["ports"]] == [18889, 18890, 18891]
    assert service["spec"]["clusterIP"] == "None"
