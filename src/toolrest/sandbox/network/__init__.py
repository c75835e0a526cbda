"""The proxy of the network allow list."""
