"""Rules for commands: `prefix_rule` and its kin as data, and which of them match.

A rule matches a command that begins with its tokens. All matching rules count, and the
strictest decides; no rule overrides another by its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from toolrest.answer import Answer
from toolrest.policy.shell.words import wordset

SPELLINGS = {"allow": Answer.ALLOW, "prompt": Answer.ASK, "forbidden": Answer.DENY}
"""How rules files, and Codex's JSON, spell the answers."""
_SPELLED = {answer: text for text, answer in SPELLINGS.items()}


def spelled(answer: Answer) -> str:
    """An answer as rules files spell it."""
    return _SPELLED[answer]


class PrefixRule(NamedTuple):
    """`rest` holds, for each token after the program, the alternatives at that place.

    `outside` on a rule that allows: such commands may leave the sandbox, too (D-56).
    """

    program: str
    rest: tuple[tuple[str, ...], ...]
    decision: Answer
    justification: str | None = None
    source: str = ""
    outside: bool = False


class NetworkRule(NamedTuple):
    """Decides whether a host may be contacted. The proxy reads these, commands do not."""

    host: str
    protocol: str
    decision: Answer
    justification: str | None = None
    source: str = ""


class RuleMatch(NamedTuple):
    """A rule that matched: the words it matched, and its decision on them.

    `uncertain` means that a word the shell still has to expand may or may not be one of the
    rule's tokens; then even a rule that forbids only asks.
    """

    prefix: tuple[str, ...]
    decision: Answer
    justification: str | None = None
    source: str = ""
    resolved_program: str | None = None
    uncertain: bool = False
    outside: bool = False

    def to_json(self) -> dict[str, Any]:
        """As Codex prints it."""
        match: dict[str, Any] = {
            "matchedPrefix": list(self.prefix),
            "decision": spelled(self.decision),
        }
        if self.justification is not None:
            match["justification"] = self.justification
        if self.resolved_program is not None:
            match["resolvedProgram"] = self.resolved_program
        return {"prefixRuleMatch": match}


_SYSTEM_FOLDERS = wordset(
    "/bin /usr/bin /sbin /usr/sbin /usr/local/bin /opt/homebrew/bin /run/current-system/sw/bin"
)


class Rules(Struct):
    """The rules in force, indexed by their first token."""

    by_program: dict[str, list[PrefixRule]] = field(default_factory=dict)
    executables: dict[str, frozenset[str]] = field(default_factory=dict)
    network: list[NetworkRule] = field(default_factory=list)

    def add(self, rule: PrefixRule) -> None:
        """Put one rule in force."""
        self.by_program.setdefault(rule.program, []).append(rule)

    def merge(self, other: Rules) -> None:
        """Put the rules of another set in force too."""
        for rules in other.by_program.values():
            for rule in rules:
                self.add(rule)
        self.executables.update(other.executables)
        self.network += other.network

    def with_allow(self, prefix: Sequence[str], *, outside: bool) -> Rules:
        """A copy in which commands with this prefix are allowed."""
        copy = Rules({k: list(v) for k, v in self.by_program.items()}, dict(self.executables))
        rest = tuple((token,) for token in prefix[1:])
        copy.add(PrefixRule(prefix[0], rest, Answer.ALLOW, outside=outside))
        return copy

    def matches(
        self, argv: Sequence[str], marks: Sequence[int] = (), *, resolve: bool = True
    ) -> list[RuleMatch]:
        """Every rule that matches; `marks` show which words are not literal.

        With `resolve` an absolute program also matches rules for its file name: those that
        allow only if the path is one of its host executables or in a system folder.
        """
        if not argv or not self.by_program or (marks and marks[0]):
            return []
        found = self._by_name(argv[0], argv, marks)
        if found or not resolve or not argv[0].startswith("/"):
            return found
        folder, _, name = argv[0].rpartition("/")
        listed = self.executables.get(name)
        known = argv[0] in listed if listed is not None else folder in _SYSTEM_FOLDERS
        return [
            match._replace(resolved_program=argv[0])
            for match in self._by_name(name, argv, marks)
            if known or (listed is None and match.decision != Answer.ALLOW)
        ]

    def _by_name(self, name: str, argv: Sequence[str], marks: Sequence[int]) -> list[RuleMatch]:
        rules = self.by_program.get(name, ())
        found = (_match(rule, argv, marks) for rule in rules)
        return [match for match in found if match is not None]

    def check(self, argv: Sequence[str], *, resolve: bool = False) -> dict[str, Any]:
        """The answer of `execpolicy check`: what matches, and the decision if anything does."""
        matches = self.matches(argv, resolve=resolve)
        answer: dict[str, Any] = {"matchedRules": [match.to_json() for match in matches]}
        if matches:
            answer["decision"] = spelled(max(match.decision for match in matches))
        return answer

    def allowed_prefixes(self) -> list[tuple[str, ...]]:
        """The prefixes that are allowed, shortest first, alternatives spelled out."""
        found: set[tuple[str, ...]] = set()
        for rules in self.by_program.values():
            for rule in rules:
                if rule.decision == Answer.ALLOW:
                    found.update(_spelled(rule))
        return sorted(found, key=lambda prefix: (len(prefix), sum(map(len, prefix)), prefix))

    def hosts(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Allowed and denied hosts of the network rules; the last rule for a host counts."""
        last = {rule.host: rule.decision for rule in self.network if rule.decision != Answer.ASK}
        allowed = tuple(host for host, decision in last.items() if decision == Answer.ALLOW)
        return allowed, tuple(host for host in last if host not in allowed)


def _match(rule: PrefixRule, argv: Sequence[str], marks: Sequence[int]) -> RuleMatch | None:
    length = 1 + len(rule.rest)
    if len(argv) < length and not any(marks):
        return None
    uncertain = False
    for place, alternatives in enumerate(rule.rest, 1):
        # One word that is not literal may become several, so the rest may match as well.
        if marks and any(marks[1 : place + 1]):
            uncertain = True
            break
        if place >= len(argv) or argv[place] not in alternatives:
            return None
    if uncertain and rule.decision == Answer.ALLOW:
        return None
    return RuleMatch(
        (rule.program, *argv[1:length]),
        Answer.ASK if uncertain else rule.decision,
        rule.justification,
        rule.source,
        uncertain=uncertain,
        outside=rule.outside,
    )


def _spelled(rule: PrefixRule) -> Iterable[tuple[str, ...]]:
    prefixes: list[tuple[str, ...]] = [(rule.program,)]
    for alternatives in rule.rest:
        prefixes = [(*prefix, token) for prefix in prefixes for token in alternatives][:1000]
    return prefixes
