"""The type of an answer: its JSON Schema for the model, and the check of what comes back."""

from __future__ import annotations

import typing
from functools import cached_property
from typing import Any, Generic, TypeVar

from toolrest.agent.conversation.answer_form import AnswerForm, without_fence
from toolrest.items import JSONObject

Out = TypeVar("Out")
_ONLY = "result"


class OutputType(Generic[Out]):
    """A pydantic model, dataclass, TypedDict, list, union or any other type that pydantic knows.

    What is no JSON object is asked for as `{"result": …}`, because model APIs take only objects.
    """

    def __init__(self, kind: Any, retries: int = 2) -> None:
        self._kind = kind
        self._retries = retries

    @property
    def is_text(self) -> bool:
        """Whether the model's text itself is the answer."""
        return self._kind is str

    @cached_property
    def _adapter(self) -> Any:
        # pydantic loads with the first call that is checked, not with the agent.
        from pydantic import PydanticUserError, TypeAdapter

        try:
            return TypeAdapter(self._kind)
        except PydanticUserError as error:
            if error.code != "typed-dict-version":
                raise
            return TypeAdapter(_newer_typed_dict(self._kind))

    @cached_property
    def schema(self) -> JSONObject | None:
        """The JSON Schema of the answer, closed as strict servers want it; None for text."""
        if self.is_text:
            return None
        schema: JSONObject = _closed(self._adapter.json_schema())
        if not self._is_wrapped:
            return schema
        definitions = schema.pop("$defs", None)
        wrapped: JSONObject = _closed({"type": "object", "properties": {_ONLY: schema}})
        return wrapped | ({"$defs": definitions} if definitions else {})

    @property
    def form(self) -> AnswerForm | None:
        """The form of the answer, sent back up to `retries` times; None for text."""
        if self.schema is None:
            return None
        return AnswerForm(self.schema, self._problems, self._retries)

    def _problems(self, text: str) -> str | None:
        try:
            self.read(text)
        except ValueError as error:
            return str(error)
        return None

    @cached_property
    def _is_wrapped(self) -> bool:
        kind: object = self._adapter.json_schema().get("type")
        return kind != "object"

    def read(self, text: str | None) -> Out:
        """The answer in a text; ValueError lists every problem, for the model to read."""
        if self.is_text:
            answer: Any = text or ""
            return typing.cast(Out, answer)
        from pydantic import TypeAdapter, ValidationError

        data = without_fence(text or "")
        try:
            if self._is_wrapped:
                data = TypeAdapter(dict[str, Any]).validate_json(data)[_ONLY]
                found = self._adapter.validate_python(data)
            else:
                found = self._adapter.validate_json(data)
        except KeyError:
            raise ValueError(f'- expected an object with the one key "{_ONLY}"') from None
        except ValidationError as error:
            raise ValueError("\n".join(map(_problem, error.errors()))) from None
        return typing.cast(Out, found)


def _problem(error: Any) -> str:
    place = ".".join(map(str, error["loc"]))
    return f"- {place}: {error['msg']}" if place else f"- {error['msg']}"


def _closed(schema: Any) -> Any:
    """The schema with every property required and no others; free-form objects stay open."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items() if key != "default"}
    properties = closed.get("properties")
    if closed.get("type") == "object" and isinstance(properties, dict):
        closed |= {"required": list(properties), "additionalProperties": False}
    return closed


def _newer_typed_dict(kind: Any) -> Any:
    """The same TypedDict as pydantic wants it before Python 3.12."""
    from typing_extensions import TypedDict

    hints = typing.get_type_hints(kind, include_extras=True)
    for key in kind.__optional_keys__:
        hints[key] = typing.NotRequired[hints[key]]
    return TypedDict(kind.__name__, hints)  # type: ignore[operator]
