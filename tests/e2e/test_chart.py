"""The Helm chart renders what kustomize makes."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests import chart
from tests.e2e.controlplane.binaries import find

pytestmark = pytest.mark.own_cluster

ROOT = Path(__file__).parents[2]
OVERLAYS = ROOT / "manifests" / "overlays"
OFF = {"certificates": "own", "crds": False, "networkPolicies": False}
SAME = [
    ({"certificates": "own"}, ["default"]),
    ({"certificates": "self-signed"}, ["overlays/self-signed"]),
    ({"certificates": "cert-manager"}, ["overlays/cert-manager"]),
    (OFF, ["base"]),
    (OFF | {"networkPolicies": True}, ["base", "components/network-policy"]),
    (OFF | {"admissionPolicies": "suspending"}, ["base", "overlays/admission-policies"]),
    (OFF | {"admissionPolicies": "validating"}, ["base", "overlays/validating-policies"]),
    (OFF | {"monitoring": True}, ["base", "overlays/monitoring"]),
    (OFF | {"rightToUse": True}, ["base", "overlays/right-to-use"]),
    (OFF | {"fleet": "hub"}, ["base", "overlays/fleet-hub"]),
    (OFF | {"fleet": "member"}, ["base", "overlays/fleet-member"]),
    (OFF | {"fleet": "hub", "multiKueue": True}, ["base", "overlays/fleet-hub", "overlays/fleet-multikueue"]),
]
OF_THE_CHART = {"helm.sh/resource-policy", "checksum/config"}
Key = tuple[str, str, str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart as `make chart` writes it."""
    written = tmp_path_factory.mktemp("built") / "chart"
    chart.write(written)
    return written


def run(*command: str | Path, kubeconfig: Path | None = None, stdin: str | None = None) -> str:
    """Return what a program prints; what it says on standard error is the failure."""
    words = [*map(str, command), *([] if kubeconfig is None else ["--kubeconfig", str(kubeconfig)])]
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(folder: Path, values: dict[str, Any]) -> dict[Key, dict[str, Any]]:
    """Return the objects that helm makes of the chart."""
    return by_name(run(find("helm"), "template", "tutti", folder, "--values", "-", stdin=json.dumps(values)))


def by_name(text: str) -> dict[Key, dict[str, Any]]:
    found: dict[Key, dict[str, Any]] = {}
    for document in yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if document:
            metadata = document["metadata"]
            key = (document["kind"], metadata.get("namespace", ""), metadata["name"])
            assert key not in found, f"{key} twice"
            found[key] = document
    return found


def plain(value: Any) -> Any:
    """Return an object without what only the chart has, and without empty maps, which mean nothing."""
    if isinstance(value, dict):
        kept = {key: plain(part) for key, part in value.items() if key not in OF_THE_CHART}
        if "config.yaml" in kept:
            kept["config.yaml"] = yaml.safe_load(kept["config.yaml"])
        return {key: part for key, part in kept.items() if key not in ("annotations", "labels") or part}
    return [plain(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("values", "kustomizations"), SAME, ids=json.dumps)
def test_the_chart_renders_what_kustomize_makes(
    folder: Path, values: dict[str, Any], kustomizations: list[str], tmp_path: Path
) -> None:
    wanted: dict[Key, dict[str, Any]] = {}
    for number, kustomization in enumerate(kustomizations):
        path = ROOT / "manifests" / kustomization
        if "kind: Component" in (path / "kustomization.yaml").read_text():
            around = tmp_path / str(number)
            around.mkdir()
            relative = Path(*[".."] * len(around.parts[1:]), *path.parts[1:])
            (around / "kustomization.yaml").write_text(f"components: [{relative}]\n")
            path = around
        wanted |= by_name(run(find("kubectl"), "kustomize", path))
    made = rendered(folder, values)
    assert made.keys() == wanted.keys()
    for key, document in wanted.items():
        assert plain(made[key]) == plain(document), key


def test_values_reach_the_objects_and_wrong_ones_are_refused(folder: Path) -> None:
    digest = f"sha256:{'a' * 64}"
    values = {"image": {"repository": "r.example/t", "digest": digest}, "webhook": {"replicas": 5}}
    made = rendered(folder, values | {"config": {"log_level": "warning"}})
    webhook = made["Deployment", "tutti-system", "tutti-webhook"]["spec"]
    assert webhook["replicas"] == 5
    assert webhook["template"]["spec"]["containers"][0]["image"] == f"r.example/t@{digest}"
    config = made["ConfigMap", "tutti-system", "tutti-config"]["data"]["config.yaml"]
    assert yaml.safe_load(config) == {"log_level": "warning"}
    of_hub = rendered(folder, values | {"fleet": "hub", "config": {"fleet_dead_man": True}})
    config = of_hub["ConfigMap", "tutti-system", "tutti-hub"]["data"]["config.yaml"]
    assert yaml.safe_load(config) == {"fleet_dead_man": True, "fleet_members": "/members"}
    watched = rendered(folder, {"monitoring": True, "monitoringLabels": {"release": "stack"}})
    for kind in ("ServiceMonitor", "PrometheusRule"):
        assert watched[kind, "tutti-system", "tutti"]["metadata"]["labels"] == {"release": "stack"}
    hub = of_hub["Deployment", "tutti-system", "tutti-hub"]["spec"]
    assert "checksum/config" in hub["template"]["metadata"]["annotations"], "a change restarts it"
    assert (hub["replicas"], hub["template"]["spec"]["containers"][0]["image"]) == (1, f"r.example/t@{digest}")
    for wrong in (
        {"webhok": {}},
        {"certificates": "none"},
        {"fleet": True},
        {"multiKueue": True},
        {"multiKueue": True, "fleet": "member"},
        {"webhook": {"replicas": 0}},
        {"monitoringLabels": {"release": 1}},
        {"image": {"digest": "x"}},
    ):
        with pytest.raises(AssertionError, match=re.compile("values", re.IGNORECASE)):
            rendered(folder, wrong)


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"typo": 1}, "typo"),
        ({"lease": {"lease_secs": 9}}, "lease_secs"),
        ({"fairSharing": {"strategies": []}}, "strategies"),
        ({"addedContainers": [{"name": "a", "image": "b"}]}, "image"),
    ],
)
def test_a_key_that_the_configuration_does_not_have_is_refused_by_helm(
    folder: Path, wrong: dict[str, Any], key: str
) -> None:
    with pytest.raises(AssertionError, match=rf"(?s)config.*{key}"):
        rendered(folder, {"config": wrong})


def test_helm_takes_every_key_of_the_configuration_in_either_spelling(folder: Path) -> None:
    config = {
        "lease": {"lease_seconds": 9},
        "waitForPodsReady": {"timeout": "5m", "requeuingStrategy": {"backoffLimitCount": 3}},
        "fair_sharing": {"preemptionStrategies": ["LessThanInitialShare"]},
        "addedContainers": [{"name": "a", "podLabels": {"b": "c"}, "requests": {"cpu": 1}}],
        "kinds": [{"anything": {"that": "kinds say"}}],
        "peers": {"a": "https://a.example"},
    }
    made = rendered(folder, {"config": config})
    assert yaml.safe_load(made["ConfigMap", "tutti-system", "tutti-config"]["data"]["config.yaml"]) == config


def test_every_value_is_described_by_the_schema() -> None:
    values = yaml.safe_load((chart.CHART / "values.yaml").read_text())
    schema = json.loads((chart.CHART / "values.schema.json").read_text())
    assert values.keys() | {"global"} == schema["properties"].keys()
