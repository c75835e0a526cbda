"""`${VAR}` and `${VAR:-default}` in what a server's settings say."""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolrest.config._merge_secret_names import PROVIDER_KEYS
from toolrest.mcp.errors import McpError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_NEVER = frozenset(PROVIDER_KEYS)


def expand(text: str, environ: Mapping[str, str], where: str) -> str:
    """The text with its variables filled in; `where` is the setting that an error names."""

    def value(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        if name.upper() in _NEVER:
            raise McpError(
                f"{where} uses {name}, which pays for the model and is given to no server"
            )
        found = environ.get(name, "")
        if found:
            return found
        if default is not None:
            return default
        raise McpError(
            f"{where} needs the variable {name}, which is not set; set it, "
            f"or write ${{{name}:-default}}"
        )

    return _VARIABLE.sub(value, text)


def variables_in(text: str) -> tuple[str, ...]:
    """The names of the variables that are filled in, in order of appearance."""
    return tuple(dict.fromkeys(match[1] for match in _VARIABLE.finditer(text)))
