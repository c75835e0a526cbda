"""Terminal output, and questions that a person answers there."""
