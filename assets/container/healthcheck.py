"""Exit with 0 if the app on port 8642 of this machine is healthy, for a container's or pod's health check.

The token is read from ``SFAPP_TOKEN``, or from the file in ``SFAPP_TOKEN_FILE``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

URL = "http://127.0.0.1:8642/healthz"


def main() -> int:
    """Return the exit code."""
    token, file = os.environ.get("SFAPP_TOKEN", ""), os.environ.get("SFAPP_TOKEN_FILE", "")
    if not token and file:
        token = Path(file).read_text().split("\n", 1)[0].strip()
    # The proxies of the environment are for other machines: they must not see the token.
    opener = build_opener(ProxyHandler({}))
    request = Request(URL, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with opener.open(request, timeout=4):
            return 0
    except (URLError, OSError) as error:
        sys.stderr.write(f"{URL}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
