"""`toolrest batch`: run many tasks, and report on them."""
