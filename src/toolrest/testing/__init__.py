"""Test doubles for users' own tools and agents: scripted models and servers."""

from __future__ import annotations

from toolrest.lazy_names import LazyNames

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

_NAMES = LazyNames(
    __name__,
    {
        "toolrest.testing.script": (
            "Call Cut Fail Freeform Garbage Incomplete LocalShell Pause Raw Reply Say Think "
            "context_full"
        ),
        "toolrest.testing.scripted_model": "ScriptedModel",
        "toolrest.testing.server": "ScriptedServer",
        "toolrest.testing.sync_tool": "test_sync_tool",
    },
)
__all__ = _NAMES.names()
__getattr__ = _NAMES.get


def __dir__() -> list[str]:
    return __all__
