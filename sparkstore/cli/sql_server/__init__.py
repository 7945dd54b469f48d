"""A process with limits that answers one query by DuckDB, for the broker's HTTP port."""
