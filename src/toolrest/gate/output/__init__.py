"""What a model is shown of a result: limited, redacted, the rest in a file."""
