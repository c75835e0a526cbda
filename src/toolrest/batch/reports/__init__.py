"""Reports on a batch from its store: status, results, trajectories; retrying and cancelling."""
