"""Which warnings about the settings does a person read now? Some of them once is enough."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from toolrest.config import Config


def tell_warnings(config: Config) -> None:
    """Print them on standard error."""
    for warning in _to_tell(config):
        click.echo(f"toolrest: {warning}", err=True)


def _to_tell(config: Config) -> Iterator[str]:
    from toolrest.config.schema.families import no_family

    model = config.value.model
    for warning in config.warnings:
        # That a model has no family is no mistake: the defaults suit most of those that have none.
        once = model is not None and warning == no_family(model)
        if not once or _first_time(config.home, str(model)):
            yield warning


def _first_time(home: str, model: str) -> bool:
    """Whether nobody was told of this model yet; from now on somebody was."""
    from hashlib import sha256

    from toolrest.private_files import private_file, private_folder, write_all

    name = sha256(model.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    try:
        folder = private_folder(home, "told")
    except OSError:
        return True
    try:
        file = private_file(folder, name)
    except FileExistsError:
        return False
    except OSError:
        return True
    finally:
        os.close(folder)
    with suppress(OSError):  # for whoever looks; the name of the file is what counts
        write_all(file, model.encode("utf-8", "surrogatepass") + b"\n")
    os.close(file)
    return True
