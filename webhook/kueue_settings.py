"""Settings in the words of Kueue's Configuration (``config.kueue.x-k8s.io``): its defaults, bounds, refusals."""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from webhook.core.notation import quantity
from webhook.untyped.operator_files import Section

LONGEST_SECONDS: Final = 2**31 - 1
"""How long a gang may be waited for: as many seconds as Kueue can say."""


class KueueSection(Section):
    """Base of the sections in Kueue's words, where null is the same as absent."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else data


class FairSharing(KueueSection):
    """Kueue's fairSharing: on where it is written, and then it names strategies."""

    preemption_strategies: tuple[Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"], ...] = Field(
        alias="preemptionStrategies"
    )

    @field_validator("preemption_strategies")
    @classmethod
    def _in_order(cls, strategies: tuple[str, ...]) -> tuple[str, ...]:
        final, initial = "LessThanOrEqualToFinalShare", "LessThanInitialShare"
        if strategies not in ((final,), (initial,), (final, initial)):
            raise ValueError(f"write one of [{final}], [{initial}], [{final}, {initial}]")
        return strategies


def _duration_seconds(value: object) -> object:
    """Return a duration as Go writes it (``1h30m``) in seconds; numbers are seconds already."""
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        return value
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION_PART.findall(value))


_DURATION_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|ms|s|m|h)", re.ASCII)
_DURATION: Final = re.compile(rf"\+?(?:{_DURATION_PART.pattern})+", re.ASCII)
_UNIT_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
Duration = Annotated[float, BeforeValidator(_duration_seconds)]
Wait = Annotated[Duration, Field(ge=0, le=LONGEST_SECONDS)]
WholeWait = Annotated[int, Field(ge=0, le=LONGEST_SECONDS)]
Thousandths = Annotated[int, BeforeValidator(quantity.parse)]


class RequeuingStrategy(KueueSection):
    """Kueue's waitForPodsReady.requeuingStrategy."""

    timestamp: Literal["Eviction", "Creation"] = "Eviction"
    backoff_limit_count: Annotated[int, Field(ge=0)] | None = Field(default=None, alias="backoffLimitCount")
    backoff_base_seconds: WholeWait = Field(default=60, alias="backoffBaseSeconds")
    backoff_max_seconds: WholeWait = Field(default=3600, alias="backoffMaxSeconds")


class WaitForPodsReady(KueueSection):
    """Kueue's waitForPodsReady, with Kueue's defaults: another way to write ``start``."""

    timeout: Annotated[Wait, AfterValidator(lambda seconds: seconds or 1800.0)] = 1800.0
    """0: the default, as Kueue reads it."""
    recovery_timeout: Wait | None = Field(default=None, alias="recoveryTimeout")
    """None: ``timeout``; 0: for ever."""
    block_admission: Literal[False] = Field(default=False, alias="blockAdmission")
    """True is refused: that gangs start whole is ensured before they start."""
    requeuing_strategy: RequeuingStrategy = Field(default=RequeuingStrategy(), alias="requeuingStrategy")


class Transform(KueueSection):
    """Kueue's resources.transformations[]: one requested resource is charged as others."""

    input: str
    strategy: Literal["Retain", "Replace"] = "Retain"
    multiply_by: str = Field(default="", alias="multiplyBy")
    outputs: dict[str, Thousandths] = Field(default_factory=dict)


class Resources(KueueSection):
    """Kueue's resources: what is charged of what pods ask."""

    exclude_resource_prefixes: tuple[str, ...] = Field(default=(), alias="excludeResourcePrefixes")
    transformations: tuple[Transform, ...] = ()
    quota_check_strategy: Literal["BlockUndeclared", "IgnoreUndeclared"] = Field(
        default="BlockUndeclared", alias="quotaCheckStrategy"
    )

    @field_validator("transformations")
    @classmethod
    def _inputs_differ(cls, rules: tuple[Transform, ...]) -> tuple[Transform, ...]:
        if len({rule.input for rule in rules}) < len(rules):
            raise ValueError("two transformations have one input; merge them")
        return rules

    @model_validator(mode="after")
    def _one_way_to_leave_out(self) -> "Resources":
        if self.exclude_resource_prefixes and self.quota_check_strategy == "IgnoreUndeclared":
            raise ValueError("excludeResourcePrefixes does not go with quotaCheckStrategy IgnoreUndeclared; write one")
        return self


class AdmissionFairSharing(KueueSection):
    """Kueue's admissionFairSharing: in queues that ask for it, who used less lately goes first."""

    usage_half_life_time: Annotated[Duration, Field(ge=0)] = Field(default=0.0, alias="usageHalfLifeTime")
    usage_sampling_interval: Annotated[Duration, Field(ge=0), AfterValidator(lambda seconds: seconds or 300.0)] = Field(
        default=300.0, alias="usageSamplingInterval"
    )
    """0: the default, as Kueue reads it."""
    resource_weights: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict, alias="resourceWeights")
