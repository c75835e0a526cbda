"""The terminal itself: quiet output, input that knows pastes, colours."""
