"""Policy becomes confinement: bubblewrap, Landlock, Seatbelt, containers; probing; the proxy."""
