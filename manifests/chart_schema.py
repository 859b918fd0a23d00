"""The schema of the chart's values, with the keys that the configuration has.

Helm refuses a key that no process would read, before anything is changed. Only keys are judged: what a value may be is
said by the processes, with field and fix.
"""

import json
from pathlib import Path
from typing import Any, get_args

from webhook.config import Config
from webhook.untyped.operator_files import Section

Schema = dict[str, Any]


def schema_of_values(written: Path) -> str:
    """Return the schema in ``written`` with the keys of ``config`` put in."""
    schema = json.loads(written.read_text())
    schema["properties"]["config"] |= _keys(Config)
    return json.dumps(schema, indent=2) + "\n"


def _keys(section: type[Section]) -> Schema:
    properties: Schema = {}
    for name, field in section.model_fields.items():
        inside = _inside(field.annotation)
        properties |= dict.fromkeys((name, field.alias or name), inside)
    return {"additionalProperties": False, "properties": properties}


def _inside(annotation: Any) -> Schema:
    """Return what a field's value must be like: a section, a list of sections, or anything."""
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, Section):
            return {"items": _keys(part)} | _keys(part)
    return {}
