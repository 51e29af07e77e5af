"""Why a window did not come together. Both stay inside the recorder, which then writes parts."""


class GatherRefused(Exception):
    """All ranks agree that this window cannot be put together; the next may. Stays inside the recorder."""


class GatherFailed(Exception):
    """A rank is gone or late, the group is of no more use. Stays inside the recorder."""
