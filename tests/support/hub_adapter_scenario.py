"""The Hub adapter's life against a local Hub, in a process of its own and under whatever huggingface_hub it finds.

Run by ``tests/runtime/adapters/test_hub_library_versions.py`` with the address of a local Hub, a repository, a scratch
folder and an event loop as arguments. It prints one JSON object. Logging is at its loudest, so that a leak is seen.
"""

import json
import logging
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

import anyio

from conveyor.actors.port_errors import ContentChanged
from conveyor.actors.ports import BytesSource, CommitRequest, FileSource
from conveyor.protocol.digests import digest_bytes
from conveyor.protocol.outcome import HubError
from conveyor.protocol.work import AttemptFile, PreuploadFile, UploadMode
from conveyor.runtime.adapters.hub import HuggingFaceHub
from conveyor.runtime.adapters.hub_options import HubOptions

CONTENT = bytes(range(256)) * 4096


def fault(url: str, name: str, action: dict[str, Any], kind: str) -> None:
    """Script one misfortune."""
    rule = {"name": name, "action": action, "match": {"kind": kind}, "times": 1}
    body = json.dumps({"rules": [rule]}).encode()
    request = urllib.request.Request(f"{url}/_control/faults", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=30).close()


async def scenario(url: str, repository: str, folder: Path) -> dict[str, Any]:
    """Deliver, meet misfortunes, and leave a stuck transfer behind."""
    found: dict[str, Any] = {}
    path = folder / "x.bin"
    path.write_bytes(CONTENT)
    source = FileSource(digest_bytes(CONTENT), str(path))
    async with HuggingFaceHub(HubOptions(endpoint=url)) as hub:
        head = await hub.head(repository)
        answers = await hub.preupload(repository, [PreuploadFile("x.bin", len(CONTENT), CONTENT[:512])])
        found["mode"] = answers[0].mode
        seen: list[int] = []
        # The library repeats the transfer by itself, with a line in its log that has the signed address.
        fault(url, "retried", {"do": "status", "status": 503, "retry_after_s": 0}, "lfs-put")
        await hub.upload_object(repository, "x.bin", source, seen.append)
        found["progress_bytes"] = sum(seen)
        files = (AttemptFile("x.bin", source.digests, UploadMode.LFS),)
        commit = await hub.commit(CommitRequest(repository, head, "Title", "Body", files, {}))
        content = await hub.download(repository, commit, "x.bin", max_bytes=len(CONTENT))
        found["delivered"] = content == CONTENT
        path.write_bytes(CONTENT[::-1])
        try:
            await hub.upload_object(repository, "y.bin", source, seen.append)
        except ContentChanged as error:
            found["changed"] = error.code
        fault(url, "refused", {"do": "status", "status": 403}, "lfs-batch")
        try:
            await hub.upload_object(repository, "y.bin", BytesSource(digest_bytes(b"y"), b"y"), seen.append)
        except HubError as error:
            found["refused"] = error.outcome.kind
    if "HF_HUB_DISABLE_XET" in os.environ:
        without_xet = HubOptions(endpoint=url, large_upload="xet")
        async with HuggingFaceHub(without_xet) as hub:
            other = CONTENT + b"without Xet"
            path.write_bytes(other)
            await hub.upload_object(repository, "z.bin", FileSource(digest_bytes(other), str(path)), seen.append)
            files = (AttemptFile("z.bin", digest_bytes(other), UploadMode.LFS),)
            await hub.commit(CommitRequest(repository, commit, "Title", "Body", files, {}))
    async with HuggingFaceHub(HubOptions(endpoint=url, stall_s=0.3)) as hub:
        fault(url, "stuck", {"do": "stall_request"}, "lfs-put")
        stuck = BytesSource(digest_bytes(b"stuck" * 99999), b"stuck" * 99999)
        try:
            await hub.upload_object(repository, "s.bin", stuck, seen.append)
        except HubError as error:
            found["stalled"] = error.outcome.error_type
        found["unfinished_threads"] = hub.unfinished_threads(repository)
    return found


def main() -> None:
    """Run it and say what was found; ends although a thread still hangs."""
    url, repository, folder, backend = sys.argv[1:]
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    logging.getLogger("asyncio").setLevel(logging.INFO)
    import huggingface_hub

    logging.getLogger("huggingface_hub").setLevel(logging.DEBUG)
    found = anyio.run(scenario, url, repository, Path(folder), backend=backend)
    sys.stdout.write(json.dumps({"version": huggingface_hub.__version__, **found}))


if __name__ == "__main__":
    main()
