"""The walk of one call: understand, schedule, decide, ask, attempt, report."""
