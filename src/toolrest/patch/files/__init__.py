"""Where a patch reads and writes."""
