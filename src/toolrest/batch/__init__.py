"""Many tasks: each one idempotent unit of work, stored so that any runner can go on with it."""
