"""Test doubles for users' own tools and agents: scripted models and servers."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolrest.testing.script import Call as Call
    from toolrest.testing.script import Cut as Cut
    from toolrest.testing.script import Fail as Fail
    from toolrest.testing.script import Freeform as Freeform
    from toolrest.testing.script import Garbage as Garbage
    from toolrest.testing.script import Incomplete as Incomplete
    from toolrest.testing.script import LocalShell as LocalShell
    from toolrest.testing.script import Pause as Pause
    from toolrest.testing.script import Raw as Raw
    from toolrest.testing.script import Reply as Reply
    from toolrest.testing.script import Say as Say
    from toolrest.testing.script import Think as Think
    from toolrest.testing.script import context_full as context_full
    from toolrest.testing.scripted_model import ScriptedModel as ScriptedModel
    from toolrest.testing.server import ScriptedServer as ScriptedServer
    from toolrest.testing.sync_tool import test_sync_tool as test_sync_tool

_SCRIPT = "toolrest.testing.script"
_HOMES = {
    "Call": _SCRIPT,
    "Cut": _SCRIPT,
    "Fail": _SCRIPT,
    "Freeform": _SCRIPT,
    "Garbage": _SCRIPT,
    "Incomplete": _SCRIPT,
    "LocalShell": _SCRIPT,
    "Pause": _SCRIPT,
    "Raw": _SCRIPT,
    "Reply": _SCRIPT,
    "Say": _SCRIPT,
    "ScriptedModel": "toolrest.testing.scripted_model",
    "ScriptedServer": "toolrest.testing.server",
    "Think": _SCRIPT,
    "context_full": _SCRIPT,
    "test_sync_tool": "toolrest.testing.sync_tool",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    """Load a name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'toolrest.testing' has no attribute {name!r}")
    # `import toolrest.testing` loads nothing else.
    from importlib import import_module

    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
