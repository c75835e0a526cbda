"""A home folder, a workspace and a way to load settings from them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolrest.config import Config, load
from toolrest.errors import ConfigError


class Desk:
    """Everything a load depends on, with nothing of the machine's own in it."""

    def __init__(self, folder: Path) -> None:
        self.user_home = folder / "user"
        self.home = self.user_home / ".toolrest"
        self.workspace = folder / "work"
        self.home.mkdir(parents=True)
        self.workspace.mkdir()
        self.env: dict[str, str] = {"HOME": str(self.user_home)}

    @property
    def file(self) -> Path:
        return self.home / "config.toml"

    @property
    def project_file(self) -> Path:
        return self.workspace / ".toolrest" / "config.toml"

    def user(self, text: str) -> None:
        self.file.write_text(text)
        self.file.chmod(0o600)

    def project(self, text: str) -> None:
        self.project_file.parent.mkdir(exist_ok=True)
        self.project_file.write_text(text)

    def trusting(self, text: str = "") -> None:
        """The user's file, which trusts the workspace and says `text` besides."""
        real = os.path.realpath(self.workspace)
        self.user(f'{text}\n[projects."{real}"]\ntrust_level = "trusted"\n')

    def load(self, **kwargs: Any) -> Config:
        kwargs.setdefault("env", self.env)
        kwargs.setdefault("workspace", self.workspace)
        return load(home=self.home, **kwargs)

    def error(self, **kwargs: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            self.load(**kwargs)
        return str(caught.value)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def new_desk(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Desk]:
    """A fresh desk for each example of a property test."""
    return lambda: Desk(tmp_path_factory.mktemp("desk"))
