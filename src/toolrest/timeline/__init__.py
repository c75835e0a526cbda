"""What a person sees of a session: events and stored items folded into cells, and their drawing.

Cells are data. The terminal, exports and replays draw the same ones.
"""
