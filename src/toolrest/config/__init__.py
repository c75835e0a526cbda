"""Settings: TOML layers, profiles, trust, and where every value came from."""
