"""The browser page of `toolrest web`: recorded and running sessions, and approvals that wait.

The journal of a session is the source: a line's byte offset is the id of its event, so a page
that connects again misses nothing and sees nothing twice, whichever process writes the journal.
"""
