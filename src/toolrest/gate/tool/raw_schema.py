"""Raw JSON Schemas: the arguments of a tool that has its own schema, with a compiled validator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from toolrest.errors import ToolDefinitionError
from toolrest.gate.tool import arguments
from toolrest.items import JSONObject

# A server's pattern that looks ahead may read a long text once for each of its characters.
_MOST_BACKTRACKS: Final = 10_000
_MOST_ERRORS: Final = 200


class RawSchema:
    """A schema from a tool's author or a server, which checks what models send.

    `loose`: nobody here can mend its errors, so what has no meaning in it checks nothing.
    """

    def __init__(self, schema: JSONObject, tool: str, *, loose: bool = False) -> None:
        self.schema = schema
        self._tool = tool
        self._loose = loose

    @cached_property
    def parameters(self) -> JSONObject:
        """The schema in the form that models are offered."""
        from toolrest.gate.schema.for_wire import normalise
        from toolrest.gate.schema.repair import repaired

        return normalise(repaired(self.schema) if self._loose else self.schema, tool=self._tool)

    def check(self) -> None:
        """Raise ToolDefinitionError when it is no JSON Schema."""
        _ = self._validator

    def decode(self, raw: str | Mapping[str, Any]) -> arguments.Decoded:
        """The arguments as a dict; RespondToModel names every wrong field."""
        from toolrest.gate.schema.optional_nulls import fill_nulls

        value = fill_nulls(self.schema, arguments.parse_object(raw))
        problems = list(self._validator.iter_errors(value))
        if problems:
            fields = tuple(_field(problem) for problem in problems)
            raise arguments.invalid(
                [f"`{f}`: {p.message}" for f, p in zip(fields, problems, strict=True)], fields
            )
        return arguments.Decoded(value)

    @cached_property
    def _validator(self) -> Any:
        try:
            # OpenAPI's `nullable` means something, but not to a validator.
            if self._loose and '"nullable": true' in json.dumps(self.schema):
                return self._loose_validator()
            return _compiled(self.schema or True)
        except (ValueError, TypeError) as error:
            if self._loose:
                return self._loose_validator()
            message = str(error).split("\n", 1)[0]
            raise ToolDefinitionError(f"{self._tool}: bad JSON Schema: {message}") from None

    def _loose_validator(self) -> Any:
        """A validator of the repaired schema without its errors, or else of the normal form."""
        from toolrest.gate.schema.for_wire import normalise
        from toolrest.gate.schema.repair import repaired, without

        form = repaired(self.schema)
        for _ in range(_MOST_ERRORS):
            try:
                return _compiled(form)
            except (ValueError, TypeError) as error:
                path = getattr(error, "instance_path", None)
                if not path:
                    break
                form = without(form, path)
        return _compiled(normalise(self.schema, tool=self._tool, guesses=False))


def _compiled(schema: Any) -> Any:
    import jsonschema_rs

    return jsonschema_rs.validator_for(
        schema,
        retriever=no_retrieval,
        pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_MOST_BACKTRACKS),
    )


def no_retrieval(address: str) -> Any:
    """Refuse a `$ref` that would read a file or fetch an address."""
    raise ValueError(f"{address} is outside of the schema, and is not fetched")


def _field(problem: Any) -> str:
    """The path of the wrong field; of a missing one its own, not that of the object around it."""
    path = list(problem.instance_path)
    missing = getattr(problem.kind, "property", None)
    if isinstance(missing, str):
        path.append(missing)
    return arguments.dotted(path)
