"""The sandbox: bubblewrap, Landlock, Seatbelt and containers, their probing, and the proxy."""
