"""What a kubelet does with a Secret volume: keeps a folder's files as the Secret says, swapped all at once.

Run as ``python -m tests.e2e.controlplane.mount --server URL --keys FOLDER --secret NAMESPACE/NAME --to FOLDER ...``.
Files are links through ``..data``, as in a pod, so that live reloading is tried as it happens there.
"""

import argparse
import base64
import shutil
import time
from pathlib import Path
from typing import Final

from tests.e2e.controlplane.api import Api, ApiError

POLL_SECONDS: Final = 0.5


def follow(api: Api, secret: str, folders: list[Path]) -> None:
    """Keep the folders as the Secret says, for ever."""
    namespace, _, name = secret.partition("/")
    version = ""
    while True:
        try:
            found = api.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")
        except (OSError, ApiError):
            found = None
        if found and found["metadata"]["resourceVersion"] != version:
            version = found["metadata"]["resourceVersion"]
            files = {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
            for folder in folders:
                swap(folder, version, files)
        time.sleep(POLL_SECONDS)


def swap(folder: Path, version: str, files: dict[str, bytes]) -> None:
    """Replace all files of a folder in one step."""
    folder.mkdir(parents=True, exist_ok=True)
    fresh, data = folder / f"..{version}", folder / "..data"
    fresh.mkdir(exist_ok=True)
    for name, content in files.items():
        (fresh / name).touch(mode=0o600)
        (fresh / name).write_bytes(content)
    stale = data.readlink() if data.is_symlink() else None
    link = folder / "..data_next"
    link.unlink(missing_ok=True)
    link.symlink_to(fresh.name)
    link.replace(data)
    for name in files:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path("..data") / name)
    if stale is not None and stale.name != fresh.name:
        shutil.rmtree(folder / stale, ignore_errors=True)


def main() -> None:
    """Read the command line and follow the Secret."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--keys", type=Path, required=True)
    parser.add_argument("--secret", required=True, metavar="NAMESPACE/NAME")
    parser.add_argument("--to", type=Path, action="append", required=True)
    given = parser.parse_args()
    api = Api.with_keys(given.server, given.keys / "ca.crt", given.keys / "admin.crt", given.keys / "admin.key")
    follow(api, given.secret, given.to)


if __name__ == "__main__":
    main()
