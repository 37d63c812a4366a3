"""Who a token is and what it may do."""

import hashlib
import threading
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from .options import HubServeOptions, TokenGrant
from .problems import forbidden, repo_not_found, unauthorised
from .records import RepoType
from .repository import Repository
from .state import HubState

_BAD_CREDENTIALS = "Invalid credentials in Authorization header"


@dataclass(frozen=True, slots=True)
class Identity:
    """The holder of a valid token. ``key`` stands for the token where it must not be shown."""

    user: str
    key: str
    grant: TokenGrant

    def names(self, repo_id: str) -> bool:
        """Whether the token is limited to certain repositories and this is one of them."""
        return any(fnmatchcase(repo_id, pattern) for pattern in self.grant.repositories or ())

    def may_write(self, repo_id: str) -> bool:
        """Whether the token may change a repository of this name."""
        return self.grant.role != "read" and (self.grant.repositories is None or self.names(repo_id))

    def may_see(self, repository: Repository) -> bool:
        """Whether the token may read a repository."""
        return not repository.private or self.grant.repositories is None or self.names(repository.repo_id)

    def whoami(self) -> dict[str, Any]:
        """The answer of whoami-v2 (hub API notes section 3)."""
        token: dict[str, Any] = {"displayName": self.key[:8], "role": self.grant.role}
        if self.grant.role == "fineGrained":
            permissions = ["repo.content.read", "repo.write"]
            token["fineGrained"] = {
                "global": [],
                "scoped": [
                    {"entity": {"type": "dataset", "name": name}, "permissions": permissions}
                    for name in self.grant.repositories or ()
                ],
            }
        return {
            "type": "user",
            "id": hashlib.sha256(self.user.encode()).hexdigest()[:24],
            "name": self.user,
            "fullname": self.user,
            "isPro": False,
            "orgs": [{"type": "org", "name": name, "roleInOrg": "write"} for name in self.grant.organisations],
            "auth": {"type": "access_token", "accessToken": token},
        }


class Access:
    """The tokens of one Hub, and those that were revoked while it runs."""

    def __init__(self, options: HubServeOptions) -> None:
        self._grants = {grant.token: grant for grant in options.tokens}
        self._user = options.user
        self._create_missing = options.create_missing
        self._revoked: set[str] = set()
        self._lock = threading.Lock()

    def identify(self, authorization: str | None) -> Identity | None:
        """The holder of the token in an Authorization header, None without one.

        Raises:
            HubRefusal: 401; the token is unknown or revoked.
        """
        if authorization is None:
            return None
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        key = hashlib.sha256(token.encode()).hexdigest()[:16]
        grant = self._grants.get(token)
        if grant is None and not self._grants and token.startswith("hf_"):
            grant = TokenGrant(token, self._user)
        with self._lock:
            revoked = key in self._revoked or "*" in self._revoked
        if scheme.lower() != "bearer" or grant is None or revoked:
            raise unauthorised(_BAD_CREDENTIALS)
        return Identity(grant.user, key, grant)

    def revoke(self, key: str = "*") -> None:
        """From now on the token with this key (all by default) is refused with 401."""
        with self._lock:
            self._revoked.add(key)

    def restore(self) -> None:
        """Make revoked tokens valid again."""
        with self._lock:
            self._revoked.clear()

    def readable(self, state: HubState, identity: Identity | None, repo_type: RepoType, repo_id: str) -> Repository:
        """The repository if this identity may read it; made on first use where the options say so.

        Raises:
            HubRefusal: 404 ``RepoNotFound`` with a token, 401 without one.
        """
        repository = state.find(repo_type, repo_id)
        if repository is None and self._create_missing and identity is not None and identity.may_write(repo_id):
            repository, _ = state.create(repo_type, repo_id)
        if repository is not None and (identity.may_see(repository) if identity else not repository.private):
            return repository
        raise repo_not_found() if identity else unauthorised()

    def writable(self, state: HubState, identity: Identity | None, repo_type: RepoType, repo_id: str) -> Repository:
        """The repository if this identity may write to it.

        Raises:
            HubRefusal: 401 without a token, 404 ``RepoNotFound`` when it may not see it, 403 when it may only read.
        """
        if identity is None:
            raise unauthorised()
        repository = self.readable(state, identity, repo_type, repo_id)
        if not identity.may_write(repo_id):
            raise forbidden(
                f"Forbidden: you must use a write token to upload to a repository. User {identity.user} may only read "
                f"{repo_id}."
            )
        return repository
