"""The catalog of compute classes: its form, and loading it, with problems that say where and how to correct it.

Vendors' shape tables change several times a year, so they are versioned data with a mode for each rule, never code.
"""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from webhook.core.notation.problem import Problem, Unreadable
from webhook.errors import WrongInput
from webhook.untyped import yaml_text
from webhook.untyped.operator_files import Section, problems_of

SHIPPED: Final = "compute_classes.yaml"
_SIZES_FIX: Final = "write GiB as '2-16', '32/64/128' or 1800"
_SIZES_MAX: Final = 10_000
_SHAPES_FIX: Final = "for example {2: 2-16, 4: 4-32}"


class Mode(StrEnum):
    """What a broken rule does."""

    DENY = "deny"
    WARN = "warn"
    MUTATE = "mutate"
    OFF = "off"


class Rule(StrEnum):
    """The rules, in the order they are checked."""

    KNOWN_CLASS = "known-class"
    KNOWN_QOS = "known-qos"
    CLASS_QOS = "class-qos"
    GPU_MODEL = "gpu-model"
    KNOWN_MODEL = "known-model"
    GPU_COUNT = "gpu-count"
    GPU_IN_CPU_CLASS = "gpu-in-cpu-class"
    SHAPE = "shape"
    GUARANTEED = "guaranteed"
    CPU_ANNOTATION = "cpu-annotation"
    HOST_NAMESPACES = "host-namespaces"
    ONE_CLASS = "one-class"
    ONE_PRIORITY = "one-priority"
    POD_GROUP_CLASS = "pod-group-class"


MUTABLE: Final = frozenset({Rule.SHAPE, Rule.GUARANTEED})
"""Rules that can correct what breaks them."""

Shapes = Mapping[Decimal, tuple[Decimal, ...]]
"""vCPU to the memory sizes in GiB, both ascending."""


def _memory_sizes(text: object) -> tuple[Decimal, ...]:
    """Return the sizes that ``2-16`` (steps of 1), ``32/64`` or ``1800`` names."""
    first, dash, last = str(text).partition("-")
    try:
        if dash and int(last) - int(first) > _SIZES_MAX:
            raise Unreadable("", text, f"names more than {_SIZES_MAX} sizes", _SIZES_FIX)
        if dash:
            sizes = tuple(Decimal(size) for size in range(int(first), int(last) + 1))
        else:
            sizes = tuple(Decimal(size) for size in str(text).split("/"))
    except (ValueError, InvalidOperation):
        raise Unreadable("", text, "is not a list of sizes", _SIZES_FIX) from None
    if not sizes or list(sizes) != sorted(set(sizes)) or sizes[0] <= 0:
        raise Unreadable("", text, "sizes must be above 0 and ascend", _SIZES_FIX)
    return sizes


def _shapes(table: object) -> Shapes:
    if not isinstance(table, dict) or not table:
        raise Unreadable("", table, "is not a table of shapes", f"write vCPU: memory, {_SHAPES_FIX}")
    try:
        parsed = {Decimal(str(cpu)): _memory_sizes(memory) for cpu, memory in table.items()}
    except InvalidOperation:
        raise Unreadable("", table, "a key is not a number of vCPUs", f"write {_SHAPES_FIX}") from None
    return dict(sorted(parsed.items()))


ShapeTable = Annotated[Shapes, BeforeValidator(_shapes)]


class Labels(Section):
    """Label keys."""

    compute_class: str = Field(alias="class")
    qos: str
    model: str


class ComputeClass(Section):
    """What one class allows."""

    qos: tuple[str, ...]
    gpu: bool = False
    pod_group: bool = Field(False, alias="podGroup")
    """Gangs with a PodGroup may use it."""
    shapes: ShapeTable | None = None
    tables: bool = False
    """Shapes follow the tables of ``models``."""
    gpu_counts: tuple[int, ...] = Field((), alias="gpuCounts")


class ComputeClassCatalog(Section):
    """A loaded catalog."""

    schema_: Literal[1] = Field(alias="schema")
    version: str
    labels: Labels
    cpu_only_annotations: tuple[str, ...] = Field((), alias="cpuOnlyAnnotations")
    gpu_resources: tuple[str, ...] = Field(("nvidia.com/gpu",), alias="gpuResources")
    rules: Mapping[Rule, Mode]
    default: str
    """The class of a pod without the label, when another pod of its gang has one."""
    qos: tuple[str, ...]
    classes: Mapping[str, ComputeClass]
    models: Mapping[str, Mapping[int, ShapeTable]] = Field(default_factory=dict)

    def mode(self, rule: Rule) -> Mode:
        """Return the mode of ``rule``; a rule that the file leaves out is off."""
        return self.rules.get(rule, Mode.OFF)

    @model_validator(mode="after")
    def _coherent(self) -> "ComputeClassCatalog":
        for rule, mode in self.rules.items():
            if mode is Mode.MUTATE and rule not in MUTABLE:
                raise Unreadable(f"rules.{rule}", mode, "cannot mutate", "write deny, warn or off")
        if self.default not in self.classes:
            raise Unreadable("default", self.default, "is no class", f"write one of {', '.join(self.classes)}")
        for name, compute_class in self.classes.items():
            for qos in compute_class.qos:
                if qos not in self.qos:
                    fix = f"write one of {', '.join(self.qos)}"
                    raise Unreadable(f"classes.{name}.qos", qos, "is not listed", fix)
        return self


def shipped() -> ComputeClassCatalog:
    """Return the catalog that comes with the package."""
    text = resources.files("webhook.jobs.compute_class").joinpath(SHIPPED).read_text(encoding="utf-8")
    return parse(text, SHIPPED)


def load(path: Path) -> ComputeClassCatalog:
    """Return the catalog in the file at ``path``. Raises WrongInput; keep the last good one then."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(str(path), f"cannot be read: {error}", "give a readable YAML file") from error
    return parse(text, str(path))


def parse(text: str, source: str) -> ComputeClassCatalog:
    """Return the catalog written as YAML ``text``; ``source`` names it in problems. Raises WrongInput."""
    try:
        document: Any = yaml_text.document(text)
    except yaml_text.UnreadableYaml as error:
        where = source if error.line is None else f"{source}:{error.line}"
        raise _refused(where, "is not YAML", str(error)) from error
    try:
        return ComputeClassCatalog.model_validate(document)
    except ValidationError as error:
        raise WrongInput(problems_of(error, source, ": ")) from error


def _refused(path: str, why: str, fix: str) -> WrongInput:
    return WrongInput((Problem(path, "", why, fix),))
