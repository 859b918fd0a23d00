"""Write what the image and an installed wheel are made of, from the lock file, as CycloneDX: the file lies beside them.

``python -m manifests.bill_of_materials FILE``. The same lock file makes the same bytes.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.dependency import Dependency
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from webhook import __version__

LOCK: Final = Path(__file__).parents[1] / "requirements.lock"
_ENTRY: Final = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^\s;\\]+)((?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def components(lock: str) -> list[Component]:
    """Return every locked package; its hashes are those of the files that may be installed for it."""
    found = []
    for name, version, rest in _ENTRY.findall(lock):
        hashes = [HashType(alg=HashAlgorithm.SHA_256, content=value) for value in _HASH.findall(rest)]
        url = PackageURL("pypi", name=name, version=version)
        found.append(Component(name=name, version=version, purl=url, bom_ref=str(url), hashes=hashes))
    return found


def document(lock: str) -> str:
    """Return the bill of materials of what the lock file pins."""
    product = Component(name="tutti", version=__version__, type=ComponentType.APPLICATION, bom_ref="tutti")
    parts = components(lock)
    bom = Bom(
        components=parts,
        metadata=BomMetaData(component=product, timestamp=None),
        serial_number=uuid5(NAMESPACE_URL, lock),
        dependencies=[
            Dependency(product.bom_ref, [Dependency(part.bom_ref) for part in parts]),
            *(Dependency(part.bom_ref) for part in parts),
        ],
    )
    # The library writes the present moment where there is none, and two bills of one lock are to be the same.
    bom.metadata.timestamp = None  # type: ignore[assignment]
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def main() -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.parse_args().file.write_text(document(LOCK.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
