"""The gate that every call passes: define, register, route, schedule, decide, run, limit, answer.

What few calls need (approval requests, hooks, grants, grammars, schemas that are not ready) is
imported by the function that needs it; so is pydantic, which loads when the first call is checked.
"""
