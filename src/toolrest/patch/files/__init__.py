"""The file system that a patch reads and writes, behind the path policy."""
