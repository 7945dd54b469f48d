"""Clients of a broker as an administrator sees them: consumers, users and permissions."""
