"""Landlock rules, seccomp filters and mounts, as the kernel takes them."""
