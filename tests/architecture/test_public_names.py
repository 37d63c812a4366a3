"""The names each layer offers are exactly the names it says it offers, and each is described."""

from __future__ import annotations

import ast
import importlib
import inspect
from types import ModuleType

import pytest

from tests.architecture.rules import LAYERS, ROOT, python_files, tree_of

PACKAGES = [f"conveyor.{layer}" for layer in LAYERS]


def offered(module: ModuleType) -> list[str]:
    """`__all__` of a module."""
    names = getattr(module, "__all__", [])
    assert isinstance(names, list)
    return names


def bound(path_of: str) -> set[str]:
    """The public names that a layer's `__init__.py` binds: by import, definition or assignment."""
    names: set[str] = set()
    for node in tree_of(ROOT / path_of.removeprefix("conveyor.") / "__init__.py").body:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_layer_offers_exactly_what_it_binds(package: str) -> None:
    """`__all__` and the public names of the layer's `__init__.py` agree in both directions; neither is empty."""
    names = offered(importlib.import_module(package))
    assert names, f"{package} has no __all__"
    assert len(names) == len(set(names))
    assert set(names) == bound(package)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_offered_name_exists_and_is_described(package: str) -> None:
    """Each name is there and comes from this project; classes and functions have a docstring of their own."""
    module = importlib.import_module(package)
    for name in offered(module):
        thing = getattr(module, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert thing.__module__.startswith("conveyor."), f"{package}.{name} belongs to somebody else"
            text = thing.__doc__ or ""
            assert text.strip(), f"{package}.{name} has no docstring"
            assert not text.startswith(f"{name}("), f"{package}.{name} has only the docstring that dataclass made"


def defined(module: ast.Module) -> set[str]:
    """The public classes, functions and constants that a file itself defines."""
    names: set[str] = set()
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def listed(module: ast.Module) -> set[str] | None:
    """`__all__` of a file as it is written, or None."""
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return None


def test_a_module_offers_only_what_it_has() -> None:
    """A file with `__all__` defines, or imports, every name in it."""
    for path in python_files(ROOT, *LAYERS):
        module = tree_of(path)
        names = listed(module)
        if names is None:
            continue
        imported = {
            alias.asname or alias.name
            for node in module.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        assert names <= defined(module) | imported, path
