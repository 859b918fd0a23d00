"""Write the Helm chart's templates from the manifests: ``python -m manifests.chart FOLDER``.

What kustomize puts together is read as it does (``resources``, ``components``, labels, patches that add), and each part
stands behind the value that asks for it. A few fields become values. That this is what kustomize makes is tried by
rendering both.
"""

import argparse
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from manifests.chart_schema import schema_of_values
from manifests.output import Dumper

MANIFESTS: Final = Path(__file__).parent
CHART: Final = MANIFESTS.parent / "chart"
Document = dict[str, Any]


class Part(NamedTuple):
    """One kustomization and when the chart has it."""

    file: str
    folder: str
    condition: str
    leave_out: str = ""
    """Kinds to leave out, as a pattern."""


_SUSPENDING: Final = "components/admission-policies"
PARTS: Final = (
    Part("crds", "crds", ".Values.crds"),
    Part("base", "base", ""),
    Part("network-policies", "components/network-policy", ".Values.networkPolicies"),
    Part("self-signed", "components/self-signed", 'eq .Values.certificates "self-signed"'),
    Part("cert-manager", "components/cert-manager", 'eq .Values.certificates "cert-manager"'),
    Part("admission-policies", _SUSPENDING, 'ne .Values.admissionPolicies "none"', "MutatingAdmissionPolicy(Binding)?"),
    Part("suspending-policies", _SUSPENDING, 'eq .Values.admissionPolicies "suspending"', "Validating.*"),
    Part("monitoring", "components/monitoring", ".Values.monitoring"),
    Part("right-to-use", "components/right-to-use", ".Values.rightToUse"),
    Part("fleet-hub", "components/fleet-hub", 'eq .Values.fleet "hub"'),
    Part("fleet-member", "components/fleet-member", 'eq .Values.fleet "member"'),
    Part("multikueue", "components/multikueue", ".Values.multiKueue"),
)
_HELPERS: Final = """{{- define "tutti.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}
"""
_ONE_OF_A_KIND: Final = "tutti-hub"
"""A Deployment whose replicas and resources are no values; it has the others' configuration, and its members' place."""
_KEEP: Final = {"helm.sh/resource-policy": "keep"}
_HOLDS_SECRETS: Final = "kueue-system"
"""A namespace with Secrets of the user's own, which the MultiKueueClusters that stay refer to."""


def documents(folder: Path) -> Iterator[Document]:
    """Yield the objects of a kustomization, with its labels; patches of other parts' objects are not applied."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    found: list[Document] = []
    for entry in kustomization.get("resources", ()):
        found += yaml.safe_load_all((folder / entry).read_text())
    for made in kustomization.get("configMapGenerator", ()):
        metadata = {"name": made["name"], "namespace": made["namespace"], "labels": made["options"]["labels"]}
        data = {Path(name).name: (folder / name).read_text() for name in made["files"]}
        found.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    labels = {key: value for entry in kustomization.get("labels", ()) for key, value in entry["pairs"].items()}
    for document in found:
        if labels:
            document["metadata"].setdefault("labels", {}).update(labels)
        yield document


def added_by_cert_manager() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield kind (a pattern), name and annotations of what cert-manager's component patches in the base."""
    kustomization = yaml.safe_load((MANIFESTS / "components" / "cert-manager" / "kustomization.yaml").read_text())
    for entry in kustomization["patches"]:
        (operation,) = yaml.safe_load(entry["patch"])
        assert (operation["op"], operation["path"]) == ("add", "/metadata/annotations")
        yield entry["target"]["kind"], entry["target"]["name"], operation["value"]


class _Template:
    """Objects as text with places for values."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}

    def place(self, expression: str) -> str:
        """Return a word for which ``expression`` will stand."""
        word = f"place-{len(self._places)}-"
        self._places[word] = expression
        return word

    def text(self, document: Document) -> str:
        """Return an object's template."""
        written = yaml.dump(document, Dumper=Dumper, sort_keys=False, width=110)
        written = written.replace("{{", '{{ "{{" }}')
        for word, expression in self._places.items():
            written = written.replace(word, expression)
        return written


def _with_values(document: Document, template: _Template) -> Document:
    """Put values into an object where the chart has them."""
    kind, name = document["kind"], document["metadata"]["name"]
    if kind == "CustomResourceDefinition" or (kind, name) == ("Namespace", _HOLDS_SECRETS):
        document["metadata"].setdefault("annotations", {}).update(_KEEP)
    if kind == "ConfigMap" and name == "tutti-config":
        document["data"]["config.yaml"] = template.place("{{ toYaml .Values.config | quote }}")
    if kind == "ConfigMap" and name == _ONE_OF_A_KIND:
        own = 'merge (dict "fleet_members" "/members") .Values.config'
        document["data"]["config.yaml"] = template.place(f'{{{{ printf "%s\\n" (toYaml ({own})) | quote }}}}')
    if kind in ("ServiceMonitor", "PrometheusRule"):
        document["metadata"]["labels"] = template.place("{{ toJson .Values.monitoringLabels }}")
    for pod in _pods(document):
        for container in pod["containers"]:
            container["image"] = template.place('{{ include "tutti.image" . }}')
    if kind == "Deployment" and name != _ONE_OF_A_KIND:
        part = name.removeprefix("tutti-")
        document["spec"]["replicas"] = template.place(f"{{{{ .Values.{part}.replicas }}}}")
        (container,) = document["spec"]["template"]["spec"]["containers"]
        container["resources"] = template.place(f"{{{{ toJson .Values.{part}.resources }}}}")
    if kind == "Deployment":
        annotations = document["spec"]["template"]["metadata"].setdefault("annotations", {})
        annotations["checksum/config"] = template.place("{{ toYaml .Values.config | sha256sum }}")
    return document


def _pods(document: Document) -> Iterator[Document]:
    spec = document.get("spec", {})
    for holder in (spec, spec.get("jobTemplate", {}).get("spec", {})):
        if "containers" in holder.get("template", {}).get("spec", {}):
            yield holder["template"]["spec"]


def _annotated(document: Document, template: _Template) -> str:
    """Return an object's template, with what cert-manager has to find on it where that makes the certificates."""
    for kind, name, annotations in added_by_cert_manager():
        if re.fullmatch(kind, document["kind"]) and name == document["metadata"]["name"]:
            assert "annotations" not in document["metadata"]
            word = template.place(
                '{{ if eq .Values.certificates "cert-manager" }}' + json.dumps(annotations) + "{{ else }}{}{{ end }}"
            )
            document["metadata"]["annotations"] = word
    return template.text(document)


def template_of(part: Part) -> str:
    """Return the template of one part."""
    template = _Template()
    kept = (
        document
        for document in documents(MANIFESTS / part.folder)
        if not part.leave_out or not re.fullmatch(part.leave_out, document["kind"])
    )
    body = "---\n".join(_annotated(_with_values(document, template), template) for document in kept)
    return f"{{{{- if {part.condition} }}}}\n{body}{{{{- end }}}}\n" if part.condition else body


def write(target: Path, files: Iterable[Part] = PARTS) -> None:
    """Write the chart into ``target``, which is emptied first."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(CHART, target)
    (target / "values.schema.json").write_text(schema_of_values(CHART / "values.schema.json"))
    (target / "templates").mkdir()
    (target / "templates" / "_image.tpl").write_text(_HELPERS)
    for part in files:
        (target / "templates" / f"{part.file}.yaml").write_text(template_of(part))


def main() -> None:
    """Write the chart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    write(parser.parse_args().folder)


if __name__ == "__main__":
    main()
