"""`view_image`: let the model look at a picture in a file."""

from __future__ import annotations

import os

from toolrest.errors import Rejected, RespondToModel, os_words
from toolrest.events import ViewImageToolCall
from toolrest.gate.context import Context
from toolrest.gate.tool.args_class import Parameters, param
from toolrest.gate.tool.call import ToolCall
from toolrest.gate.tool.tool import ExecItem, Icon, Tool
from toolrest.items import Group, ToolOutput
from toolrest.policy.effects import Effects
from toolrest.policy.paths.names import inside
from toolrest.tools.images.pictures import prepare


class ViewImage(Tool):
    """`view_image`. The path policy and the size limit are those of read_file."""

    name = "view_image"
    description = (
        "Look at an image file (PNG, JPEG, GIF, WebP or BMP). Large ones are made smaller; of an "
        "animation the first frame is shown."
    )
    group: Group = "images"
    icon: Icon = "read"
    exec_item: ExecItem = ""
    small_window = False
    needs = ("include_view_image_tool",)
    typical = Effects(reads=("<path>",))
    idempotent = True

    class Args(Parameters):
        """Parameters."""

        path: str = param(
            also=("image_path",),
            description="The image file, absolute or relative to the working directory.",
        )

    def begin(self, args: Args, ctx: Context) -> ToolCall:
        """Refuse a relative path that climbs out of the workspace."""
        path = args.path
        full = ctx.resolve(path)
        if not os.path.isabs(path) and not (inside(full, ctx.workspace) or inside(full, ctx.cwd)):
            raise RespondToModel(
                f"image path `{path}` leads out of the workspace: give the absolute path",
                kind="policy_denied",
                fields=("path",),
            )
        return super().begin(args, ctx)

    def effects(self, args: Args, ctx: Context) -> Effects:
        """Reads that one file."""
        return Effects(reads=(args.path,))

    async def run(self, args: Args, ctx: Context) -> ToolOutput:
        """Return the image, or an error for the model."""
        path = ctx.resolve(args.path)
        data = await ctx.in_thread(_read, path, ctx)
        output = await ctx.in_thread(show, data, ctx)
        ctx.emit(ViewImageToolCall(call_id=ctx.call_id, path=ctx.redact(path)))
        return output


def show(data: bytes, ctx: Context) -> ToolOutput:
    """Make a file's bytes an image for the model."""
    return prepare(data, lambda: ctx.cancelled).output()


def _read(path: str, ctx: Context) -> bytes:
    try:
        fd = ctx.files.open_read(path)
    except IsADirectoryError:
        raise RespondToModel(f"image path `{path}` is not a file") from None
    except OSError as error:
        raise RespondToModel(f"unable to locate image at `{path}`: {os_words(error)}") from None
    except Rejected as error:
        message = f"unable to locate image at `{path}`: {error.message}"
        raise Rejected(message, kind=error.kind) from None
    try:
        status = os.fstat(fd)
        data = ctx.files.read_fd(fd, path)
    except OSError as error:
        raise RespondToModel(f"unable to locate image at `{path}`: {os_words(error)}") from None
    finally:
        os.close(fd)
    ctx.note_read(path, status)
    return data
