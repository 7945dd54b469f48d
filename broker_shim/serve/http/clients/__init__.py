"""Who uses a broker: consumers of its queues, users with their roles, and rules of permissions."""
