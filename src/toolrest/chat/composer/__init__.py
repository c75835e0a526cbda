"""The composer: the text that the person writes, its history, folded pastes and completions."""
