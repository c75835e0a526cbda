"""What the kernel is asked for: Landlock rules, seccomp filters, mounts."""
