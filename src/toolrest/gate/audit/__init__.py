"""The audit log: written as a hash chain, read and verified."""
