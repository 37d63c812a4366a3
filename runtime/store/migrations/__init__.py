"""The history of the store's tables. Run by `conveyor.runtime.store.migrate` on a connection that it gives."""
