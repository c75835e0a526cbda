"""Text of a patch: matching, rebuilding, diffs, encodings."""
