"""The sandbox: bubblewrap, Landlock and containers, their probing, and the proxy."""
