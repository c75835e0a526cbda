"""The form of a turn's answer: a JSON Schema, the check of what comes, how often it is sent back.

Servers that can are held to the schema; the answer is checked here, whatever a server promises.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from toolrest.gate.tool.raw_schema import no_retrieval
from toolrest.items import JSONObject

Check: TypeAlias = "Callable[[str], str | None]"
"""What is wrong with an answer, for the model to read; None when nothing is."""
RETRIES = 2
_LISTED = 10
_NOT_VALID = """\
Your answer does not have the form that was asked for:
{problems}
Send the whole answer again, as one JSON document that matches the schema, and nothing else."""


class AnswerForm(Struct):
    """The schema of an answer, its check, and how often a wrong answer goes back to the model."""

    schema: JSONObject
    check: Check
    retries: int = RETRIES

    @classmethod
    def of_schema(cls, schema: JSONObject) -> AnswerForm:
        """The form that a JSON Schema describes; ValueError when it is none."""
        # Only for answers with a schema.
        import jsonschema_rs

        validator = jsonschema_rs.validator_for(schema, retriever=no_retrieval)

        def check(text: str) -> str | None:
            try:
                errors = validator.iter_errors(json.loads(text))
                found = [str(problem.message) for problem in errors]
            except (ValueError, RecursionError) as error:  # also of what is nested too deeply
                return f"- it is not JSON: {error}"
            return "\n".join(f"- {problem}" for problem in found[:_LISTED]) or None

        return cls(schema, check)

    def complaint(self, problems: str) -> str:
        """The message to the model about a wrong answer."""
        return _NOT_VALID.format(problems=problems)


def without_fence(text: str) -> str:
    """The text without a Markdown fence around all of it, which small models add."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text[text.index("\n") : -3].strip()
    return text
