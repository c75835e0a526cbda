"""A runner's hold on a whole store, for one that cannot keep several runners apart."""

from __future__ import annotations

from toolrest.batch.stores.lease import Leases, Runner
from toolrest.batch.stores.store import Store
from toolrest.errors import ConfigError

_FOLDER = "alone"


class Alone:
    """A lease on the store. Of two that start at the same moment, one finds out by its heartbeat.

    ConfigError when another runner is at work.
    """

    def __init__(self, store: Store, runner: Runner | None = None) -> None:
        self._leases = Leases(store, _FOLDER, runner or Runner.here())
        lease = self._leases.take()
        if lease is None:
            latest = self._leases.latest()
            host = latest.runner.host if latest is not None else "another machine"
            raise ConfigError(
                f"the store {store.url} cannot create a file exclusively, so it serves one runner "
                f"at a time, and another one is at work on {host}: wait until it has ended, or "
                "use another store"
            )
        self._lease = lease

    def beat(self) -> bool:
        """Say that this runner lives; False when another one has the store."""
        return self._leases.beat(self._lease)

    def end(self) -> None:
        """Give the store back, if it is still this runner's."""
        if self._leases.beat(self._lease):
            self._leases.clear(self._lease)
