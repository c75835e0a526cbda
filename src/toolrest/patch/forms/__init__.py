"""The forms a change may come in: unified diffs, string edits, whole files, shell commands."""
