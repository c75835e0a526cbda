"""What users need to test their own tools and agents."""
