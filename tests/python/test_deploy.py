"""The Kubernetes examples parse and name only what they contain. The image is built from the package."""

import os
import re
import shutil
import subprocess

import pytest
import yaml
from conftest import ROOT, skip

KUBERNETES = ROOT / "deploy" / "kubernetes"
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"


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
        volumes = {one["name"] for one in pod.get("volumes", [])}
        for container in containers:
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
            assert all(isinstance(word, str) for word in container["command"]), container["command"]


def test_the_service_has_the_collectors_ports():
    service = next(yaml.safe_load_all((KUBERNETES / "sidecar.yaml").read_text()))
    assert [port["port"] for port in service["spec"]["ports"]] == [18889, 18890, 18891]
    assert service["spec"]["clusterIP"] == "None"


def test_the_image_is_built_with_the_toolchain_of_the_project():
    wanted = re.search(r'channel = "(.*)"', (ROOT / "rust-toolchain.toml").read_text())[1]
    text = DOCKERFILE.read_text()
    assert re.search(r"^FROM rust:([\d.]+)-", text, re.M)[1] == wanted
    assert "make packages" in text and ".deb" in text
    assert re.search(r"^USER (\d+)$", text, re.M)[1] == "1000", "nobody's collector is root"


def test_local_build_outputs_stay_out_of_the_image():
    left_out = (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text().split()
    built = [line.strip("/") for line in (ROOT / ".gitignore").read_text().split() if line.startswith("/")]
    assert ".venv-torch" in built and not set(built) - set(left_out)


@pytest.mark.parametrize("there", [["docker", "buildah"], ["buildah", "podman"], ["podman"], []])
def test_the_image_is_built_by_an_available_program(tmp_path, there):
    (tmp_path / "make").symlink_to(shutil.which("make"))
    for name in there:
        (tmp_path / name).write_text(f'#!/bin/sh\n[ "$1" = info ] || echo {name} "$@"\n')
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(["make", "image"], cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    if there:
        assert done.stdout.startswith(f"{there[0]} build "), done
        assert done.stdout.endswith("-f deploy/docker/Dockerfile -t xpu-top .\n"), done
    else:
        assert done.returncode != 0 and "no docker daemon, buildah or podman here" in done.stderr, done


def test_the_image_builds_and_has_the_programs():
    if os.environ.get("CI") not in ("true", "1"):
        skip("the image, which takes half an hour, is built in CI; `make image` builds it")
    able = (name for name in ("docker", "buildah", "podman") if runs(name, "info"))
    builder = next(able, None)
    if builder is None:
        skip("no docker daemon, buildah or podman: the image was not built", beyond_ci="docker")
    subprocess.run(["make", "image", "IMAGE=xpu-top-test"], cwd=ROOT, check=True, timeout=3600)
    assert builder == "buildah" or runs(builder, "run", "--rm", "xpu-top-test", "xpu-top", "--version")


def runs(program, *arguments):
    if not shutil.which(program):
        return False
    return subprocess.run([program, *arguments], capture_output=True, check=False).returncode == 0
