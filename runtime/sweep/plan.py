"""What the producers of a sweep make: the same bytes for the same numbers, so that anybody can check them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """The size of a sweep."""

    jobs: int = 128
    repositories: tuple[str, ...] = ()
    """Jobs are spread over them in turn."""
    files: int = 4
    """Small files of each job."""
    rewrites: int = 5
    """How often each job writes and hands over all of them."""
    bundle_bytes: int = 1024 * 1024
    """The size of the large file in each job's bundle."""
    seed: int = 0

    def repository_of(self, job: int) -> str:
        """Where a job delivers to."""
        return self.repositories[job % len(self.repositories)]

    def run_id(self, job: int) -> str:
        """The run id of a job."""
        return f"job-{job:04d}"

    def run_files(self, job: int, rewrite: int) -> Iterator[tuple[str, bytes]]:
        """The small files of a job as they are after one rewrite: name and content."""
        for number in range(self.files):
            state = {"job": job, "rewrite": rewrite, "file": number, "seed": self.seed}
            noise = _noise(f"{self.seed}/{job}/{number}/{rewrite}", 300 + 40 * number).hex()
            yield f"state-{number}.json", json.dumps({**state, "metric": noise}).encode()

    def bundle_files(self, job: int) -> list[tuple[str, str, bytes]]:
        """The files of a job's bundle: name, role, content; one large output and three small files."""
        outputs = [
            ("weights.bin", "dataset", _noise(f"{self.seed}/{job}/weights", self.bundle_bytes)),
            ("metrics.json", "metrics", json.dumps({"job": job, "loss": 1 / (job + 1)}).encode()),
        ]
        checksums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, _, content in outputs)
        listed = {name: {"sha256": hashlib.sha256(content).hexdigest()} for name, _, content in outputs}
        inventory = json.dumps({"run_id": self.run_id(job), "files": listed}, sort_keys=True)
        return [
            *outputs,
            ("sha256sums.txt", "checksums", checksums.encode()),
            ("staged_manifest.json", "staged_manifest", inventory.encode()),
        ]


def sweep_repositories(count: int, owner: str = "sweep") -> tuple[str, ...]:
    """Names for so many repositories of a rehearsal."""
    return tuple(f"{owner}/outputs-{number + 1}" for number in range(count))


def _noise(name: str, size_bytes: int) -> bytes:
    """Bytes that do not compress and follow from the name alone."""
    return hashlib.shake_128(name.encode()).digest(size_bytes)


__all__ = ["SweepPlan", "sweep_repositories"]
