"""Keys of grants: what an approval covers."""
