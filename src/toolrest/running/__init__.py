"""Starts programs: runner, confinement and results. It knows nothing of calls.

The network proxy and the reading of denials are imported by the first command that needs them.
"""
