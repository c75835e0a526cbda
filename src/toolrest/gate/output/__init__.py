"""The output that a model gets of a result: limited, redacted, the rest in a spill file."""
