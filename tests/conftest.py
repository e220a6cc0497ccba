"""What all tests share: no test may leave a broken promise in a store."""

from holdfast.testing.fixtures import histories_hold, pytest_configure

__all__ = ["histories_hold", "pytest_configure"]
