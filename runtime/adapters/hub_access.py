"""May the credential write? Read from the Hub's description of the token (hand-over protocol, section 4.6)."""

from __future__ import annotations

from typing import Any, Final

_WRITE: Final = "repo.write"


def may_write(account: object, repository: str) -> bool | None:
    """Whether the token described by `whoami` may write to a dataset repository; None if that is not said.

    Args:
        account: the answer of `whoami`; every field is optional.
        repository: `OWNER/NAME`.
    """
    token = _object(_object(account).get("auth")).get("accessToken")
    match _object(token).get("role"):
        case "write":
            return True
        case "read":
            return False
        case "fineGrained":
            return _fine_grained_may_write(_object(_object(token).get("fineGrained")), repository)
        case _:
            return None


def _fine_grained_may_write(rights: dict[str, Any], repository: str) -> bool:
    if _WRITE in _list(rights.get("global")):
        return True
    owner = repository.partition("/")[0]
    for scope in map(_object, _list(rights.get("scoped"))):
        entity = _object(scope.get("entity"))
        is_owner = entity.get("type") in ("user", "org") and entity.get("name") == owner
        is_repository = entity.get("type") in ("dataset", None) and entity.get("name") == repository
        if (is_owner or is_repository) and _WRITE in _list(scope.get("permissions")):
            return True
    return False


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


__all__ = ["may_write"]
