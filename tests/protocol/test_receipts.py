"""Receipts as the protocol's objects (hand-over protocol, sections 4.1 and 4.4)."""

from __future__ import annotations

import json

import pytest

from conveyor.protocol.receipts import BundleReceipt, BundleStatus, DeliveryCode, RunFilesReceipt, RunFilesStatus
from conveyor.protocol.requests import RefusalCode

RUN_RECORDED = """{"status": "recorded", "repository": "acme/staging", "run_id": "run-1", "pending_files": 2,
 "files_attempted": 0, "files_committed": 0, "commit_attempts": 0, "commits": 0,
 "last_error_code": null, "last_commit": null}"""

BUNDLE_PENDING = """{"handover_id": "fc8126289229d606d1691ea003df51ed", "status": "pending", "error_code": null,
 "revision": null, "attempts": 0, "repository": "acme/private", "prefix": "staged/uk-run-1",
 "copied_files": ["dataset.h5", "staged_manifest.json"]}"""


def test_a_recorded_run_receipt() -> None:
    """Section 4.1: exactly these keys in this order, whatever message it has for a person."""
    receipt = RunFilesReceipt(
        status=RunFilesStatus.RECORDED, repository="acme/staging", run_id="run-1", pending_files=2, message="hello"
    )
    assert json.dumps(receipt.to_message()) == json.dumps(json.loads(RUN_RECORDED))


def test_a_run_receipt_with_an_error() -> None:
    """Section 4.1: codes are plain texts in the answer."""
    receipt = RunFilesReceipt(
        status=RunFilesStatus.RECORDED,
        repository="acme/staging",
        run_id="run-1",
        commit_attempts=1,
        last_error_code=DeliveryCode.UPLOAD_FAILED,
    )
    answer = receipt.to_message()
    assert type(answer["status"]) is str
    assert json.dumps(answer["last_error_code"]) == '"UPLOAD_FAILED"'


def test_a_refused_run_receipt() -> None:
    """Section 4.1: all counters 0, both `last_` fields null, and one more key."""
    receipt = RunFilesReceipt(
        status=RunFilesStatus.REFUSED,
        repository="acme/staging",
        run_id="",
        refusal_code=RefusalCode.FILE_TOO_LARGE,
        message="a.bin has 40000000 bytes",
    )
    expected = json.loads(RUN_RECORDED) | {"status": "refused", "run_id": "", "pending_files": 0}
    assert receipt.to_message() == expected | {"refusal_code": "FILE_TOO_LARGE"}


def test_a_pending_bundle_receipt() -> None:
    """Section 4.4: exactly these keys in this order."""
    receipt = BundleReceipt(
        handover_id="fc8126289229d606d1691ea003df51ed",
        status=BundleStatus.PENDING,
        repository="acme/private",
        prefix="staged/uk-run-1",
        copied_files=("dataset.h5", "staged_manifest.json"),
        message="hello",
    )
    assert json.dumps(receipt.to_message()) == json.dumps(json.loads(BUNDLE_PENDING))


def test_a_refused_bundle_receipt() -> None:
    """Section 4.4: identifier and folder empty, no copies, the refusal code as `error_code`."""
    receipt = BundleReceipt(
        handover_id="",
        status=BundleStatus.REFUSED,
        repository="acme/private",
        error_code=RefusalCode.FILE_DIGEST_DIFFERS,
    )
    assert receipt.to_message() == {
        "handover_id": "",
        "status": "refused",
        "error_code": "FILE_DIGEST_DIFFERS",
        "revision": None,
        "attempts": 0,
        "repository": "acme/private",
        "prefix": "",
        "copied_files": [],
    }


@pytest.mark.parametrize(
    ("status", "is_final"),
    [
        (BundleStatus.PENDING, False),
        (BundleStatus.UNAVAILABLE, False),
        (BundleStatus.UPLOADED, True),
        (BundleStatus.ALREADY_STAGED, True),
        (BundleStatus.FAILED, True),
        (BundleStatus.REFUSED, True),
    ],
)
def test_final_statuses(status: BundleStatus, is_final: bool) -> None:
    """Section 4.9: the statuses at which nobody asks any more."""
    assert status.is_final is is_final
