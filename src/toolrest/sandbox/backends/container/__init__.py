"""Commands in a container of docker or podman: one container a session."""
