"""What a user of huggingface_hub does, as one program for any client version; prints what it found as JSON.

Run by ``test_clients.py`` with the interpreter of a client's own virtual environment; it imports nothing of conveyor.
Arguments: a folder for downloads.
"""

import hashlib
import io
import json
import sys
import warnings
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, __version__, hf_hub_download
from huggingface_hub import snapshot_download as download_snapshot
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

REPO = "local/results"
KIND: dict[str, Any] = {"repo_type": "dataset"}
SMALL_BINARY = bytes(range(256)) * 40
LARGE_BINARY = b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(5000))
TEXT = b"step,loss\n" + b"".join(b"%d,0.5\n" % n for n in range(1000))


def sha256(path: str) -> str:
    """Digest of a file."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def status_of(call: Any, *arguments: Any, **named: Any) -> Any:
    """The class and HTTP status of the error that a call ends with."""
    try:
        call(*arguments, **named)
    except HfHubHTTPError as error:
        return [type(error).__name__, error.response.status_code]
    return "no error"


def write(api: HfApi, found: dict[str, Any]) -> None:
    """Create, upload, commit, refuse, delete."""
    found["created"] = str(api.create_repo(REPO, **KIND, exist_ok=True))
    found["created again"] = str(api.create_repo(REPO, **KIND, exist_ok=True))
    found["exists"] = status_of(api.create_repo, REPO, **KIND)
    found["user"] = api.whoami()["name"]
    api.auth_check(REPO, **KIND)
    text = api.upload_file(path_or_fileobj=TEXT, path_in_repo="logs/run.csv", repo_id=REPO, **KIND)
    basic = api.upload_file(path_or_fileobj=SMALL_BINARY, path_in_repo="data/small.bin", repo_id=REPO, **KIND)
    parts = api.upload_file(path_or_fileobj=io.BytesIO(LARGE_BINARY), path_in_repo="data/l.bin", repo_id=REPO, **KIND)
    found["single commits"] = [text.oid, basic.oid, parts.oid]
    operations = [CommitOperationAdd(f"many/f{n:03}.txt", f"{n}\n".encode()) for n in range(300)]
    operations.append(CommitOperationAdd("empty.bin", b""))
    many = api.create_commit(
        REPO, operations, commit_message="many", commit_description="id: d-1", parent_commit=parts.oid[:10], **KIND
    )
    found["many"] = many.oid
    late = [CommitOperationAdd("late.txt", b"too late")]
    found["moved"] = status_of(api.create_commit, REPO, late, commit_message="l", parent_commit=parts.oid, **KIND)
    api.delete_file("many/f000.txt", REPO, **KIND)
    api.create_commit(REPO, [CommitOperationDelete("many/", is_folder=True)], commit_message="no many", **KIND)
    found["delete gone"] = status_of(api.delete_file, "many/f000.txt", REPO, **KIND)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the Hub's remark about missing metadata
        api.upload_file(path_or_fileobj=b"# Results\n", path_in_repo="README.md", repo_id=REPO, **KIND)


def read(api: HfApi, found: dict[str, Any], downloads: Path) -> None:
    """List, look up, download, compare."""
    tree = list(api.list_repo_tree(REPO, recursive=True, expand=True, **KIND))
    found["tree"] = sorted(item.path for item in tree)
    found["many tree"] = len(list(api.list_repo_tree(REPO, "many", revision=found["many"], **KIND)))
    infos = {item.path: item for item in api.get_paths_info(REPO, ["data", "data/l.bin", "logs/run.csv", "no"], **KIND)}
    found["infos"] = sorted(infos)
    lfs: Any = infos["data/l.bin"]
    regular: Any = infos["logs/run.csv"]
    found["lfs"] = [lfs.size, lfs.lfs.sha256, lfs.lfs.size]
    found["regular"] = [regular.size, regular.blob_id, regular.lfs is None]
    commits = api.list_repo_commits(REPO, **KIND)
    found["titles"] = [commit.title for commit in commits]
    found["message of many"] = next(commit.message for commit in commits if commit.title == "many")
    found["digests"] = {
        path: sha256(hf_hub_download(REPO, path, **KIND)) for path in ("logs/run.csv", "data/small.bin", "data/l.bin")
    }
    folder = download_snapshot(REPO, local_dir=downloads, **KIND)
    found["snapshot"] = sorted(
        str(path.relative_to(folder))
        for path in Path(folder).rglob("*")
        if path.is_file() and ".cache" not in path.parts
    )
    found["at many"] = sha256(hf_hub_download(REPO, "many/f007.txt", revision=found["many"], **KIND))
    found["exists?"] = [api.file_exists(REPO, path, **KIND) for path in ("logs/run.csv", "many/f007.txt", "no")]
    found["head"] = [api.repo_info(REPO, **KIND).sha == commits[0].commit_id]
    siblings = api.dataset_info(REPO, files_metadata=True).siblings or []
    found["siblings"] = {item.rfilename: item.size for item in siblings}
    api.create_branch(REPO, branch="work/1", **KIND)
    api.create_tag(REPO, tag="v1", **KIND)
    refs = api.list_repo_refs(REPO, **KIND)
    found["refs"] = [sorted(ref.name for ref in refs.branches), [ref.name for ref in refs.tags]]


def fail(api: HfApi, found: dict[str, Any]) -> None:
    """Each refusal arrives as the class that the library promises."""
    found["errors"] = {}
    for name, wanted, call in (
        ("repo", RepositoryNotFoundError, lambda: api.repo_info("local/none", **KIND)),
        ("revision", RevisionNotFoundError, lambda: api.repo_info(REPO, revision="none", **KIND)),
        ("entry", EntryNotFoundError, lambda: hf_hub_download(REPO, "none.txt", **KIND)),
        ("folder", EntryNotFoundError, lambda: list(api.list_repo_tree(REPO, "none", **KIND))),
    ):
        try:
            call()
            found["errors"][name] = "no error"
        except wanted:
            found["errors"][name] = "as promised"
    found["bad token"] = status_of(HfApi(token="wrong").whoami)
    found["no token"] = status_of(HfApi(token=False).create_repo, "local/other", **KIND)


def main() -> None:
    """Run all and print the findings."""
    api, found = HfApi(), dict[str, Any](version=__version__)
    write(api, found)
    read(api, found, Path(sys.argv[1]))
    fail(api, found)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
