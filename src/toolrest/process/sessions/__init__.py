"""Programs that outlive a call."""
