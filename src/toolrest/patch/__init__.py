"""Changing files by patch: three ways to say it, one engine, all or nothing.

A patch is read (`grammar`, `unified`, `edits`), planned against what is on disk without writing
(`plan`, over `view`), and then written as a whole (`apply`). The engine is handed a `FileSystem`
and knows no file policy of its own.

What the `apply_patch` command imports stays free of `re`, `typing` and `dataclasses`: together
they would double its start-up time, hence the plain slotted classes there.
"""
