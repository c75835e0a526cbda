"""What is remembered of a conversation: items, journal, rollout, compaction, clean-up."""
