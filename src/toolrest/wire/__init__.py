"""Model APIs: items to and from JSON, tool specs in each API's form.

The API and the transport that a session does not use are not loaded: `providers` and `endpoint`
import them when one is chosen.
"""
