"""The rules of Conveyor, free of input and output.

Nothing here waits, reads a clock, draws a random number, opens a file or a socket, or logs: every function is a pure
function of its arguments, and time is one of them. So each rule can be tested with a table.

What is where:

- `errors`: the roots of all errors, one class for each side that can be at fault.
- `limits`: the numbers that both sides of the hand-over protocol rely on.
- `identifiers`, `requests`: the values of a hand-over and every rule on them that needs no file.
- `handover_id`: the identity of a hand-over, which both sides compute alike.
- `bundle_copy`: which files of a bundle are copied at hand-over.
- `digests`: the two identities of a content, computed in one pass.
- `path_state`: what a hand-over and a landed commit do to one repository path.
- `run_index`: the merge of run entries into `runs.json`.
- `schedule`: when the next commit may start: spacing, budget, backoff.
- `lease`: the right to write to a repository.
- `commit_text`: titles, bodies and the delivery id of commits.
- `outcome`: what an exchange with the Hub came to.
- `work`: the values that pass between the store, the actors and the Hub.
- `receipts`: what a build is told.
"""

from __future__ import annotations

from .bundle_copy import files_to_copy
from .commit_text import (
    DELIVERY_TRAILER,
    MAX_TITLE_CHARACTERS,
    bundle_title,
    bundles_title,
    commit_body,
    delivery_id,
    find_delivery_id,
    message_lines,
    run_files_title,
)
from .digests import ContentDigester, ContentDigests, check_sha256, digest_bytes
from .errors import ConveyorError, InvalidValue, LeaseLost, LocalProtocolError, RemoteProtocolError
from .handover_id import DATASET_BUNDLE, bundle_id
from .identifiers import (
    check_file_name,
    check_identifier,
    check_prefix,
    check_relative_path,
    check_repository,
    check_role,
)
from .lease import (
    LEASE_S,
    RENEW_EVERY_S,
    SAFETY_MARGIN_S,
    Lease,
    LeaseHeld,
    clamp_ahead,
    is_in_force,
)
from .limits import (
    BUNDLE_COPIES_TOGETHER_MAX_BYTES,
    BUNDLE_COPY_MAX_BYTES,
    HUB_COMMITS_PER_HOUR,
    HUB_INLINE_FILE_MAX_BYTES,
    MIN_COMMIT_SPACING_S,
    RUN_FILE_MAX_BYTES,
    RUN_FILES_TOGETHER_MAX_BYTES,
)
from .outcome import HubError, Outcome, OutcomeKind
from .path_state import IncomingBytes, PathState, hand_over, landed, may_send, not_landed
from .receipts import (
    BundleReceipt,
    BundleStatus,
    DeliveryCode,
    ReadBack,
    ReadBackStatus,
    RunFilesReceipt,
    RunFilesStatus,
    WriteAccess,
)
from .requests import (
    INVENTORY_ROLE,
    LATEST_POINTER_PATH,
    SIDECAR_ROLES,
    BundleFile,
    CheckedBundle,
    CheckedRunFiles,
    HandOverRefused,
    RefusalCode,
    RunFile,
    StageDatasetBundle,
    StageRunFiles,
    check_bundle,
    check_local_path,
    check_run_files,
)
from .run_index import RUN_INDEX_PATH, RunIndexUnreadable, merge_run_index
from .schedule import Backoff, CommitPace, due_unix_s
from .work import (
    Attempt,
    AttemptFile,
    AttemptKind,
    BundleWork,
    BundleWorkFile,
    HubCommit,
    PendingEntry,
    PendingPath,
    PreuploadAnswer,
    PreuploadFile,
    RemoteFile,
    RepositoryAgenda,
    UploadMode,
)

__all__ = [
    # What a build hands over
    "BundleFile",
    "RunFile",
    "StageDatasetBundle",
    "StageRunFiles",
    "CheckedBundle",
    "CheckedRunFiles",
    "check_bundle",
    "check_run_files",
    "INVENTORY_ROLE",
    "LATEST_POINTER_PATH",
    "SIDECAR_ROLES",
    "files_to_copy",
    # What it is told
    "BundleReceipt",
    "BundleStatus",
    "DeliveryCode",
    "ReadBack",
    "ReadBackStatus",
    "RefusalCode",
    "RunFilesReceipt",
    "RunFilesStatus",
    "WriteAccess",
    # Single values
    "check_file_name",
    "check_identifier",
    "check_local_path",
    "check_prefix",
    "check_relative_path",
    "check_repository",
    "check_role",
    "check_sha256",
    # Identities
    "DATASET_BUNDLE",
    "ContentDigester",
    "ContentDigests",
    "bundle_id",
    "delivery_id",
    "digest_bytes",
    # Delivery
    "IncomingBytes",
    "PathState",
    "hand_over",
    "landed",
    "may_send",
    "not_landed",
    "RUN_INDEX_PATH",
    "RunIndexUnreadable",
    "merge_run_index",
    "DELIVERY_TRAILER",
    "MAX_TITLE_CHARACTERS",
    "bundle_title",
    "bundles_title",
    "commit_body",
    "find_delivery_id",
    "message_lines",
    "run_files_title",
    "HubError",
    "Outcome",
    "OutcomeKind",
    # When, and by whom
    "Backoff",
    "CommitPace",
    "due_unix_s",
    "LEASE_S",
    "RENEW_EVERY_S",
    "SAFETY_MARGIN_S",
    "Lease",
    "LeaseHeld",
    "clamp_ahead",
    "is_in_force",
    # Values in between
    "Attempt",
    "AttemptFile",
    "AttemptKind",
    "BundleWork",
    "BundleWorkFile",
    "HubCommit",
    "PendingEntry",
    "PendingPath",
    "PreuploadAnswer",
    "PreuploadFile",
    "RemoteFile",
    "RepositoryAgenda",
    "UploadMode",
    # Limits
    "BUNDLE_COPIES_TOGETHER_MAX_BYTES",
    "BUNDLE_COPY_MAX_BYTES",
    "HUB_COMMITS_PER_HOUR",
    "HUB_INLINE_FILE_MAX_BYTES",
    "MIN_COMMIT_SPACING_S",
    "RUN_FILES_TOGETHER_MAX_BYTES",
    "RUN_FILE_MAX_BYTES",
    # Errors
    "ConveyorError",
    "HandOverRefused",
    "InvalidValue",
    "LeaseLost",
    "LocalProtocolError",
    "RemoteProtocolError",
]
