"""``python -m conveyor.runtime.localhub --root DIR``: the local Hub as a process of its own."""

import argparse
import sys
from pathlib import Path

import msgspec

from .options import HubServeOptions, TokenGrant
from .problems import FaultScriptInvalid, HubHostRefused, HubRootUnusable
from .server import serve


def read_tokens(path: Path) -> tuple[TokenGrant, ...]:
    """Tokens from a JSON file: a list of ``{token, user, role, repositories, organisations}``.

    Raises:
        OSError: it cannot be read.
        msgspec.DecodeError: it is something else; no token is shown.
    """
    return msgspec.json.decode(path.read_bytes(), type=tuple[TokenGrant, ...])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m conveyor.runtime.localhub", description="A local Hub.")
    add = parser.add_argument
    add("--root", type=Path, required=True, help="directory that holds everything; made when missing")
    add("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    add("--port", type=int, default=0, help="port, 0 takes a free one (default)")
    add("--allow-other-hosts", action="store_true", help="allow an address that is not loopback")
    add("--repository", action="append", default=[], metavar="[TYPE:]NS/NAME", help="make this repository at start")
    add("--create-missing", action="store_true", help="make a repository when it is first named")
    add("--tokens", type=Path, metavar="FILE", help="JSON list of tokens (default: any hf_... token may write)")
    add("--faults", type=Path, metavar="FILE", help="fault script, JSON or TOML")
    add("--no-control", action="store_true", help="do not answer control calls")
    add("--commits-per-hour", type=int, default=0, metavar="N", help="commit quota a repository (default 0: none)")
    add("--api-quota", type=int, default=100_000, metavar="N", help="requests per token in 300 s (default 100000)")
    add("--multipart-from-bytes", type=int, default=64 * 1024 * 1024, metavar="BYTES", help="multipart LFS from here")
    add("--multipart-part-bytes", type=int, default=16 * 1024 * 1024, metavar="BYTES", help="size of a part")
    add("--no-sync", action="store_true", help="do not fsync: faster, safe against kills but not against power cuts")
    add("--until-stdin-closes", action="store_true", help="end when standard input ends")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Serve until told to stop; prints ``ready URL``. Returns 0, or 2 with a message for bad use."""
    given = _parser().parse_args(arguments)
    try:
        options = HubServeOptions(
            root=given.root,
            host=given.host,
            port=given.port,
            allow_other_hosts=given.allow_other_hosts,
            repositories=tuple(given.repository),
            create_missing=given.create_missing,
            tokens=read_tokens(given.tokens) if given.tokens else (),
            faults=given.faults,
            control=not given.no_control,
            commits_per_hour=given.commits_per_hour,
            api_quota=given.api_quota,
            multipart_from_bytes=given.multipart_from_bytes,
            multipart_part_bytes=given.multipart_part_bytes,
            sync=not given.no_sync,
        )
        serve(options, on_ready=_say_ready, until_stdin_closes=given.until_stdin_closes)
    except (HubHostRefused, HubRootUnusable, FaultScriptInvalid, OSError, ValueError) as error:
        sys.stderr.write(f"The local Hub cannot start: {error}\n")
        return 2
    return 0


def _say_ready(url: str) -> None:
    sys.stdout.write(f"ready {url}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
