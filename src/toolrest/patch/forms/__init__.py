"""Forms of a patch besides Codex's: unified diffs, string edits, whole files, shell commands."""
