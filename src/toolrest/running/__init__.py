"""Starts programs: runner, confinement and results. It knows nothing of calls."""
