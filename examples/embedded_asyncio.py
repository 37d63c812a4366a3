"""A build in an asyncio program: it rewrites its state, hands it over, and never waits for the network.

    python examples/embedded_asyncio.py OWNER/NAME

Without a token and a repository of your own, start `conveyor hub serve --root hub --create-missing` first, and set
HF_ENDPOINT to the address it prints and HF_TOKEN to hf_anything.
"""

# ruff: noqa: T201 - examples print
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from conveyor.runtime import Conveyor, RunFile, StageRunFiles, open_conveyor


async def train(conveyor: Conveyor, repository: str, run_id: str, folder: Path) -> None:
    """One build: ten steps, the state handed over after each."""
    state = folder / f"{run_id}.json"
    for step in range(10):
        state.write_text(json.dumps({"step": step, "loss": 1 / (step + 1)}))
        ticket = await conveyor.stage_run_files(StageRunFiles(repository, run_id, (RunFile("state.json", state),)))
        # Refused, or the store is in trouble: the receipt says it, and the build goes on all the same.
        if not ticket.is_durable:
            print(f"{run_id}: not taken: {ticket.receipt.message}")


async def main(repository: str) -> None:
    """Two builds at once; leaving the block commits what is pending and says what is left."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_conveyor() as conveyor:
            async with asyncio.TaskGroup() as builds:
                for number in range(2):
                    builds.create_task(train(conveyor, repository, f"run-{number}", Path(folder)))
            report = await conveyor.aclose()
    left = sum(row.files for row in report.left_over)
    print(f"{left} files left over; `conveyor drain` continues" if left else "everything has arrived")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
