"""Where every call passes: define, register, route, schedule, decide, run, limit, answer."""
