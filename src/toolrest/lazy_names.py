"""Names of a package that are loaded when they are first used, so that importing it is free."""

from __future__ import annotations

from sys import modules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class LazyNames:
    """A package's public names by the module that has them: `{"pkg.module": "One Two"}`.

    The package keeps its `TYPE_CHECKING` imports for type checkers; tests/test_frame.py compares.
    `renamed` are names of the last minor version: each is its new one, with a DeprecationWarning.
    """

    def __init__(
        self, package: str, names: Mapping[str, str], renamed: Mapping[str, str] | None = None
    ) -> None:
        self._package = package
        self._renamed = renamed or {}
        self._homes = {name: home for home, texts in names.items() for name in texts.split()}

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._homes)

    @property
    def get(self) -> Callable[[str], object]:
        """The package's `__getattr__`."""
        return self._get

    def _get(self, name: str) -> object:
        if (new := self._renamed.get(name)) is not None:
            from warnings import warn

            warn(f"{self._package}.{name} is {new} now", DeprecationWarning, stacklevel=2)
            return self._get(new)
        home = self._homes.get(name)
        if home is None:
            raise AttributeError(f"module {self._package!r} has no attribute {name!r}")
        # Importing a package loads nothing else.
        from importlib import import_module

        value: object = getattr(import_module(home), name)
        setattr(modules[self._package], name, value)
        return value
