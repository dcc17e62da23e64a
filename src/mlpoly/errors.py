"""The few exceptions and warnings of the library; each message says what to do."""


class TooLargeError(ValueError, MemoryError):
    """A dense result would not fit in memory; the message names the factored alternative."""


class FileFormatError(ValueError):
    """A file is corrupt, truncated, or was not written by this library."""


class UnknownActivationError(ValueError):
    """No activation of that name is registered; the message suggests the nearest one."""


class DataWarning(UserWarning):
    """A number in closed form is far from that on the data which the distribution was estimated from."""


class QuadratureWarning(UserWarning):
    """The integral of a user's activation has not converged; its kinks are probably undeclared."""
