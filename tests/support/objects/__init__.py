"""Object storage for tests."""
