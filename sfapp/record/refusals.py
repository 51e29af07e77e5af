"""Why a window did not come together: exceptions that stay inside the recorder, which then writes parts."""


class GatherRefused(Exception):
    """All ranks agree that this window cannot be put together; the next may. Stays inside the recorder."""


class GatherFailed(Exception):
    """A rank is gone or late, the group is of no more use. Stays inside the recorder."""


def one_line(error: BaseException) -> str:
    """An error as one line of a manifest."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
