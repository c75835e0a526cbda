"""What may be touched: effects, risk, paths. Reads rules; does no other I/O."""
