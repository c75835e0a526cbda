"""What known commands do: read, touch, connect."""
