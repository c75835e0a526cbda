"""Patches: change files in one of several forms, by one engine, all or nothing.

A patch is read (`codex_grammar`, `forms/`), planned against what is on disk without writing
(`plan`, over `overlay`), and then written as a whole (`apply`). The engine works on a `FileSystem`
and knows no path policy of its own.

What the `apply_patch` command imports stays free of `re`, `typing` and `dataclasses`: together
they would double its start-up time, hence the plain slotted classes there.
"""
