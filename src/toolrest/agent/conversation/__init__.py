"""The conversation with a model: session, turn loop, requests, prompt and usage."""
