"""Tasks of batches: their lines, and what each has on a machine."""
