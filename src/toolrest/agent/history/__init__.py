"""The history of a conversation: items, journal, rollout, compaction, clean-up."""
