"""The toolrest command: parsing, asking, printing. No decisions."""
