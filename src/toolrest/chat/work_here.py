"""The way out of a read-only session: approve a patch, trust the folder, go on with its settings.

Offered only by the chat itself, where the person answered "Read only" for this folder: never where
they chose the sandbox, and not to front ends that only narrow (page, editor, control socket). A
session's settings never change under it: it is opened anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from toolrest.config.new_folder import NewFolder, held_folder
from toolrest.config.trust import trust
from toolrest.errors import ConfigError
from toolrest.policy.effects import Risk
from toolrest.policy.paths.names import inside
from toolrest.timeline.text import shown

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.gate.approval.request import ApprovalRequest

KEY = "f"
"""The key of this answer: from now on."""
MESSAGE = "This folder is trusted from now on, so you may edit files here. Go on."
"""The message to the model in the session that goes on."""
STILL = "The session stays read-only. Go on."
"""The message where the folder's own settings cannot be used."""


class WorkHere:
    """The offer, and what was accepted of it."""

    def __init__(self, problem: Callable[[str], None]) -> None:
        self._problem = problem
        self._folder: NewFolder | None = None
        self._workspace = self._home = ""
        self._conversation: Conversation | None = None
        self.is_accepted = False
        """Whether the session is to be opened anew, once its turn has ended."""

    def opened(self, conversation: Conversation) -> None:
        """Another session is open: the offer is about its folder."""
        config = conversation.rest.config
        folder = held_folder(config)
        self._folder = None if folder is None or folder.refusal else folder
        self._workspace, self._home = conversation.rest.workspace, config.home
        self._conversation, self.is_accepted = conversation, False

    def offer(self, request: ApprovalRequest) -> list[tuple[str, str]]:
        """The key and the sentence of this answer, where it would have let the patch through."""
        folder, paths = self._folder, request.effects.writes
        if folder is None or not (request.title and request.changes) or self.is_accepted:
            return []
        if request.agent or request.protected or request.risk >= Risk.CRITICAL:
            return []
        if not all(inside(os.path.normpath(path), self._workspace) for path in paths):
            return []
        more = f" ({shown(folder.listed)} here will count)" if folder.brings else ""
        return [(KEY, f"Yes, and let me work here from now on{more}")]

    def shortened(self, request: ApprovalRequest) -> ApprovalRequest:
        """The request as this chat shows it: beside this offer, approving it alone is enough."""
        return replace(request, choices=request.choices[:1]) if self.offer(request) else request

    def accept(self) -> None:
        """Trust the folder; the turn ends after its running calls, and goes on in a new session."""
        if self._folder is None or self._conversation is None:
            return
        try:
            trust(self._folder.path, home=self._home)
        except ConfigError as error:
            self._problem(f"this patch alone is approved: {error}")
        else:
            self.is_accepted = self._conversation.ends_after_calls = True
