"""Requests to a model's server: connections, streams, errors."""
