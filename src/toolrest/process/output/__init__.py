"""What a program prints: bounded, decoded, laid out."""
