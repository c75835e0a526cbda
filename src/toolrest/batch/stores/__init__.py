"""Stores of batches: their files, leases of tasks, what all runners have used."""
