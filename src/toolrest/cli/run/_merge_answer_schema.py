"""`--output-schema`: does the answer meet it? Checked here, whatever the server promises."""

from __future__ import annotations

import json

from toolrest.errors import ConfigError
from toolrest.items import JSONObject


def read_schema(path: str) -> JSONObject:
    """The schema in a file; ConfigError when it is none."""
    try:
        with open(path, encoding="utf-8") as file:
            schema = json.load(file)
        unmet(schema, "null")
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"--output-schema {path}: {error}") from None
    if not isinstance(schema, dict):
        raise ConfigError(f"--output-schema {path}: a schema is a JSON object")
    return schema


def unmet(schema: JSONObject, text: str | None) -> str | None:
    """Why an answer does not meet a schema; None when it does."""
    import jsonschema_rs

    validator = jsonschema_rs.validator_for(schema)
    try:
        value = json.loads(text or "")
    except ValueError as error:
        return f"it is not JSON ({error})"
    for problem in validator.iter_errors(value):
        return str(problem.message)
    return None
