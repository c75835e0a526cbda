"""JSON schemas as each model API takes them."""
