"""What ``conveyor hub serve`` can be told, with units and defaults."""

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from .problems import HubHostRefused


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """A token the Hub knows. With ``repositories`` the token may write to those alone and sees no other private one."""

    token: str = field(repr=False)
    user: str
    role: Literal["write", "read", "fineGrained"] = "write"
    repositories: tuple[str, ...] | None = None
    organisations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HubServeOptions:
    """Settings of one local Hub.

    ``root``: the directory that holds everything; made when missing.
    ``host``, ``port``: where to listen; port 0 takes a free one. A host that is not loopback is refused unless
    ``allow_other_hosts``.
    ``tokens``: the tokens that are valid. Empty: any token that begins with ``hf_`` is a writer called ``user``.
    ``repositories``: made at start when missing, as ``ns/name`` or ``model:ns/name`` (default type: dataset).
    ``create_missing``: a repository is made when a token that may write first names it.
    ``faults``: a fault script (JSON or TOML) to begin with. ``control``: whether ``/_control/`` answers.
    ``api_quota``, ``resolve_quota``: requests per token and 300 s window; 0 is no limit and no ``RateLimit`` headers.
    ``commits_per_hour``: commits to one repository in any 3,600 s; 0 is no limit, the real Hub takes 128.
    ``commit_quota_retry_after``: whether that refusal carries ``Retry-After``.
    ``multipart_from_bytes``, ``multipart_part_bytes``: LFS objects of this size and more are asked for in parts.
    ``upload_url_ttl_s``: how long a storage URL is valid.
    ``tree_page``, ``tree_page_expanded``, ``commits_page``: rows a page.
    ``regular_limit_bytes``: larger files are LFS. ``inline_limit_bytes``: larger inline files are refused.
    ``folder_limit``: entries one folder may have. ``commit_body_limit_bytes``: larger commit requests get 413.
    ``separate_storage``: storage URLs use the other loopback name (localhost or 127.0.0.1), so that clients see another
    host, as with the real Hub, and drop their token. ``gzip_text``: compress text for clients that accept it.
    ``sync``: fsync objects and records, so that a power cut loses no landed commit. A kill never does.
    ``shutdown_grace_s``: how long running requests may take to finish at shutdown.
    """

    root: Path
    host: str = "127.0.0.1"
    port: int = 0
    allow_other_hosts: bool = False
    tokens: tuple[TokenGrant, ...] = ()
    user: str = "local"
    repositories: tuple[str, ...] = ()
    create_missing: bool = False
    faults: Path | None = None
    control: bool = True
    api_quota: int = 100_000
    resolve_quota: int = 100_000
    commits_per_hour: int = 0
    commit_quota_retry_after: bool = False
    multipart_from_bytes: int = 64 * 1024 * 1024
    multipart_part_bytes: int = 16 * 1024 * 1024
    upload_url_ttl_s: float = 3600.0
    tree_page: int = 1000
    tree_page_expanded: int = 50
    commits_page: int = 50
    regular_limit_bytes: int = 10 * 1024 * 1024
    inline_limit_bytes: int = 10 * 1024 * 1024
    folder_limit: int = 10_000
    commit_body_limit_bytes: int = 512 * 1024 * 1024
    separate_storage: bool = True
    gzip_text: bool = True
    sync: bool = True
    shutdown_grace_s: float = 5.0


def require_allowed_host(options: HubServeOptions) -> None:
    """Check the address to listen on.

    Raises:
        HubHostRefused: it is not loopback and ``allow_other_hosts`` is not set.
    """
    if options.allow_other_hosts or options.host == "localhost":
        return
    try:
        loopback = ipaddress.ip_address(options.host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise HubHostRefused(
            f"The local Hub does not listen on {options.host}: it takes any token unless told otherwise, speaks plain "
            "HTTP and obeys control calls, so everyone who reaches the port could read and change its repositories. "
            "Use --host 127.0.0.1, or add --allow-other-hosts if the network is yours alone."
        )
