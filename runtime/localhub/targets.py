"""Which endpoint a request names: the one table of the Hub's addresses (hub API notes section 1)."""

from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import unquote

from .records import RepoType

Kind = Literal[
    "whoami",
    "agent-harnesses",
    "validate-yaml",
    "repo-create",
    "repo-delete",
    "repo-info",
    "auth-check",
    "refs",
    "branch-create",
    "branch-delete",
    "tag-create",
    "tag-delete",
    "super-squash",
    "commits",
    "preupload",
    "commit",
    "paths-info",
    "tree",
    "resolve",
    "lfs-batch",
    "lfs-verify",
    "lfs-put",
    "lfs-part",
    "lfs-complete",
    "download",
    "control",
    "unknown",
]
KINDS: tuple[str, ...] = get_args(Kind)
STORAGE_KINDS = frozenset({"lfs-put", "lfs-part", "lfs-complete", "download"})

_PLURALS: dict[str, RepoType] = {"datasets": "dataset", "models": "model", "spaces": "space"}
# (method, word after the repository id) -> kind, and how many further segments it may have.
_REPO_API: dict[tuple[str, str], tuple[Kind, int]] = {
    ("GET", "auth-check"): ("auth-check", 1),
    ("GET", "refs"): ("refs", 0),
    ("GET", "revision"): ("repo-info", 1),
    ("GET", "commits"): ("commits", 1),
    ("GET", "tree"): ("tree", 2),
    ("POST", "preupload"): ("preupload", 1),
    ("POST", "commit"): ("commit", 1),
    ("POST", "paths-info"): ("paths-info", 1),
    ("POST", "branch"): ("branch-create", 1),
    ("DELETE", "branch"): ("branch-delete", 1),
    ("POST", "tag"): ("tag-create", 1),
    ("DELETE", "tag"): ("tag-delete", 1),
    ("POST", "super-squash"): ("super-squash", 1),
}
_PLAIN_API: dict[tuple[str, str], Kind] = {
    ("GET", "whoami-v2"): "whoami",
    ("GET", "agent-harnesses"): "agent-harnesses",
    ("POST", "validate-yaml"): "validate-yaml",
    ("POST", "repos/create"): "repo-create",
    ("DELETE", "repos/delete"): "repo-delete",
}
_STORAGE: dict[tuple[str, str], Kind] = {
    ("PUT", "object"): "lfs-put",
    ("PUT", "part"): "lfs-part",
    ("POST", "complete"): "lfs-complete",
    ("GET", "object"): "download",
    ("HEAD", "object"): "download",
}


@dataclass(frozen=True, slots=True)
class Target:
    """The endpoint and what its address says. ``revision`` and ``path`` are decoded."""

    kind: Kind
    repo_type: RepoType | None = None
    repo_id: str | None = None
    revision: str | None = None
    path: str = ""

    @property
    def rate_class(self) -> Literal["api", "resolvers"] | None:
        """The quota that the request counts against."""
        if self.kind == "resolve":
            return "resolvers"
        return None if self.kind in STORAGE_KINDS or self.kind in {"control", "unknown"} else "api"


def find_target(method: str, raw_path: str) -> Target:
    """The target of a request line; ``raw_path`` is still percent-encoded."""
    segments = raw_path.strip("/").split("/")
    match segments:
        case ["_control", *rest]:
            return Target("control", path="/".join(rest))
        case ["_storage", action, plural, namespace, name, *rest] if plural in _PLURALS:
            kind = _STORAGE.get((method, action), "unknown")
            return Target(kind, _PLURALS[plural], f"{unquote(namespace)}/{unquote(name)}", path="/".join(rest))
        case ["api", plural, namespace, name, *rest] if plural in _PLURALS:
            return _repo_api(method, _PLURALS[plural], f"{unquote(namespace)}/{unquote(name)}", rest)
        case ["api", *rest]:
            return Target(_PLAIN_API.get((method, "/".join(rest)), "unknown"))
    repo_type: RepoType = "model"
    if segments[0] in {"datasets", "spaces"}:
        repo_type = _PLURALS[segments.pop(0)]
    match segments:
        case [namespace, name, "info", "lfs", "objects", action] if name.endswith(".git") and method == "POST":
            repo_id = f"{unquote(namespace)}/{unquote(name.removesuffix('.git'))}"
            return Target({"batch": "lfs-batch", "verify": "lfs-verify"}.get(action, "unknown"), repo_type, repo_id)  # type: ignore[arg-type]
        case [namespace, name, "resolve", revision, *path] if method in {"GET", "HEAD"} and path:
            repo_id = f"{unquote(namespace)}/{unquote(name)}"
            return Target("resolve", repo_type, repo_id, unquote(revision), unquote("/".join(path)))
    return Target("unknown")


def _repo_api(method: str, repo_type: RepoType, repo_id: str, rest: list[str]) -> Target:
    if not rest:
        return Target("repo-info" if method == "GET" else "unknown", repo_type, repo_id)
    kind, most_segments = _REPO_API.get((method, rest[0]), ("unknown", 0))
    arguments = [unquote(segment) for segment in rest[1:]]
    if kind == "unknown" or (len(arguments) > most_segments and kind != "tree"):
        return Target("unknown", repo_type, repo_id)
    if kind == "auth-check":
        return Target(kind, repo_type, repo_id, path=arguments[0] if arguments else "")
    if most_segments and not arguments:
        return Target("unknown", repo_type, repo_id)
    return Target(kind, repo_type, repo_id, arguments[0] if arguments else None, "/".join(arguments[1:]))
