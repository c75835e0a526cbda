"""A program's output: bounded, decoded, laid out."""
