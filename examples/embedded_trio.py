"""The end of a build in a trio program: its files go into the repository as one bundle, verified, in one commit.

    python examples/embedded_trio.py OWNER/NAME

Without a token and a repository of your own, start `conveyor hub serve --root hub --create-missing` first, and set
HF_ENDPOINT to the address it prints and HF_TOKEN to hf_anything.
"""

# ruff: noqa: T201 - examples print
import hashlib
import json
import sys
import tempfile
from pathlib import Path

import trio

from conveyor.runtime import BundleFile, NotDelivered, StageDatasetBundle, open_conveyor


def bundle_file(path: Path, role: str) -> BundleFile:
    """A file with the size and digest that it has to have when it is sent."""
    content = path.read_bytes()
    return BundleFile(path.name, role, path, hashlib.sha256(content).hexdigest(), len(content))


async def main(repository: str) -> None:
    """Write the outputs and an inventory of them, hand them over, and wait for their arrival."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "weights.bin").write_bytes(bytes(range(256)) * 4096)
        (folder / "metrics.json").write_text('{"loss": 0.1}')
        files = [bundle_file(folder / "weights.bin", "dataset"), bundle_file(folder / "metrics.json", "metrics")]
        inventory = {"run_id": "run-1", "files": {file.name: {"sha256": file.sha256} for file in files}}
        (folder / "staged_manifest.json").write_text(json.dumps(inventory))
        files.append(bundle_file(folder / "staged_manifest.json", "staged_manifest"))

        async with open_conveyor() as conveyor:
            ticket = await conveyor.stage_dataset_bundle(StageDatasetBundle(repository, "run-1", tuple(files)))
            await ticket.wait_durable()
            try:
                receipt = await ticket.wait_delivered(within_s=300)
            except NotDelivered as error:
                print(error)
            else:
                print(f"{receipt.status} as {receipt.repository}/staged/run-1")


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
