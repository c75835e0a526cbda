"""Asking a person at the terminal. What is shown is what will run, escaped so it cannot lie."""

from __future__ import annotations

import click

from toolrest.gate.approval import Answer, ApprovalRequest
from toolrest.policy.display import display_safe


def ask_on_terminal(request: ApprovalRequest) -> Answer:
    """Show the call and take y, n or q; anything else, or the end of input, is no."""
    click.echo(f"{display_safe(request.tool)} wants to run ({request.risk.label}):", err=True)
    click.echo(f"  arguments: {display_safe(request.arguments)}", err=True)
    click.echo(f"  because:   {display_safe(request.reason)}", err=True)
    try:
        answer = click.prompt(
            "Run it? [y]es / [N]o / [q]uit", default="n", show_default=False, err=True
        )
    except click.Abort:
        return "abort"
    return {"y": "approved", "yes": "approved", "q": "abort"}.get(answer.strip().lower(), "denied")  # type: ignore[return-value]
