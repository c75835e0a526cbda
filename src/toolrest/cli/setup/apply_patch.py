"""`toolrest apply-patch`: the same as the script `apply_patch`, with a help page."""

from __future__ import annotations

import sys

import click

from toolrest.patch.command import main


@click.command(
    "apply-patch",
    context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]},
)
@click.argument("arguments", nargs=-1, metavar="[PATCH]", type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Apply PATCH, or the patch on standard input, to the files it names: all of it or nothing.

    Exit code: 0 when it was applied, 1 when it cannot be, 2 for bad usage. The same as the script
    `apply_patch`.

    \b
    apply_patch <<'EOF'
    *** Begin Patch
    *** Update File: hello.txt
    @@
    -hello
    +hello world
    *** End Patch
    EOF
    """
    sys.exit(
        main(("apply_patch", *arguments), sys.stdin.buffer, sys.stdout.buffer, sys.stderr.buffer)
    )
