"""Executing runs in this process: claiming them, driving them, keeping the lease."""
