"""python_reference.py: the reference of Python, made of the sources of the package copyrpc: what __init__.py exports, with its comments. It reads
the sources and imports nothing, because the package needs the library to be built. Gives reStructuredText for Sphinx's domain of Python."""
from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Union

from c_reference import Reference

Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]


class Package:
    def __init__(self, folder: Path) -> None:
        self.lines: dict[ast.AST, list[str]] = {}
        self.found: dict[str, ast.AST] = {}  # classes and functions, whose names are of one module each
        for path in sorted(folder.glob("*.py")):
            lines = path.read_text().split("\n")
            for node in ast.parse("\n".join(lines)).body:
                if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                    self.found.setdefault(node.name, node)
                    self.lines[node] = lines
        self.init = ast.parse((folder / "__init__.py").read_text())
        self.exported: list[str] = next(
            ast.literal_eval(node.value) for node in self.init.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__")

    def bases(self, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
        """Those of its bases that are not exported themselves, and theirs: their methods are its own to whoever uses it."""
        for base in node.bases:
            found = self.found.get(base.id) if isinstance(base, ast.Name) else None
            if isinstance(found, ast.ClassDef) and found.name not in self.exported:
                yield found
                yield from self.bases(found)


def decorators(node: Function) -> set[str]:
    return {ast.unparse(decorator) for decorator in node.decorator_list}


def signature(node: Function, bound: bool) -> str:
    arguments = ast.arguments(**{name: getattr(node.args, name) for name in node.args._fields})
    if bound and "staticmethod" not in decorators(node):
        positional = [*arguments.posonlyargs, *arguments.args][1:]
        arguments.posonlyargs, arguments.args = positional[:max(0, len(arguments.posonlyargs) - 1)], positional[max(0, len(arguments.posonlyargs) - 1):]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and ast.unparse(node.returns) != "Any" else ""
    return f"({ast.unparse(arguments)}){returns}"


def comment_of(lines: list[str], node: ast.stmt) -> str:
    """What a "#:" says of an attribute: behind it, or in lines before it."""
    behind = re.search(r"#: ?(.*)", lines[(node.end_lineno or node.lineno) - 1])
    if behind:
        return behind[1]
    before: list[str] = []
    for line in reversed(lines[:node.lineno - 1]):
        if not line.strip().startswith("#:"):
            break
        before.insert(0, line.strip()[2:].strip())
    return " ".join(before)


class Writer:
    def __init__(self, package: Package, reference: Reference) -> None:
        self.package, self.reference = package, reference

    def text(self, indent: int, docstring: str) -> None:
        """Paragraphs, and blocks of code where lines are indented."""
        code = False
        for block in re.split(r"\n\s*\n", docstring):
            if not block.strip():
                continue
            if block.startswith("    "):
                if not code:
                    self.reference.put(indent, ".. code-block:: python", "")
                self.reference.put(indent, *("   " + line[4:] for line in block.split("\n")), "")
            else:
                self.reference.put(indent, self.reference.inline(" ".join(line.strip() for line in block.split("\n"))), "")
            code = block.startswith("    ")

    def function(self, indent: int, node: Function, directive: str, bound: bool = False) -> None:
        self.reference.put(indent, f".. py:{directive}:: {node.name}{'' if directive == 'property' else signature(node, bound)}")
        if directive == "property" and node.returns:
            self.reference.put(indent, f"   :type: {ast.unparse(node.returns)}")
        if isinstance(node, ast.AsyncFunctionDef):
            self.reference.put(indent, "   :async:")
        if "staticmethod" in decorators(node):
            self.reference.put(indent, "   :staticmethod:")
        if "classmethod" in decorators(node):
            self.reference.put(indent, "   :classmethod:")
        self.reference.put(0, "")
        self.text(indent + 3, ast.get_docstring(node) or "")

    def klass(self, node: ast.ClassDef) -> None:
        own = {member.name: member for member in node.body if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef))}
        made_by_users = "__init__" in own and ast.get_docstring(own["__init__"])
        self.reference.put(0, f".. py:class:: {node.name}{signature(own['__init__'], True).partition(' -> ')[0] if made_by_users else ''}", "")
        bases = [ast.unparse(base) for base in node.bases]
        if bases := [base for base in bases if base in self.package.exported]:
            self.reference.put(3, "A kind of " + " and ".join(f":py:class:`{base}`" for base in bases) + ".", "")
        self.text(3, ast.get_docstring(node) or "")
        if made_by_users:
            self.text(3, ast.get_docstring(own["__init__"]) or "")
        seen: set[str] = set()
        for owner in (node, *self.package.bases(node)):
            for member in owner.body:
                self.member(owner, member, seen)

    def member(self, owner: ast.ClassDef, member: ast.stmt, seen: set[str]) -> None:
        if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if member.name.startswith("_") or member.name in seen or not ast.get_docstring(member):
                return
            seen.add(member.name)
            property_ = decorators(member) & {"property", "functools.cached_property", "cached_property"}
            self.function(3, member, "property" if property_ else "method", True)
            return
        target = member.target if isinstance(member, ast.AnnAssign) else member.targets[0] if isinstance(member, ast.Assign) else None
        if not isinstance(target, ast.Name) or target.id.startswith("_") or target.id in seen:
            return
        comment = comment_of(self.package.lines[owner], member)
        dataclass = any("dataclass" in ast.unparse(decorator) for decorator in owner.decorator_list)
        if not comment and not dataclass:
            return
        seen.add(target.id)
        self.reference.put(3, f".. py:attribute:: {target.id}")
        if isinstance(member, ast.AnnAssign):
            self.reference.put(3, f"   :type: {ast.unparse(member.annotation)}")
            if member.value is not None and not ast.unparse(member.value).startswith("field("):
                self.reference.put(3, f"   :value: {ast.unparse(member.value)}")
        self.reference.put(0, "")
        self.text(6, comment)


def reference_of(folder: Path, kinds: dict[str, str]) -> str:
    """Of the folder of the package; `kinds` are the names of copyrpc.h."""
    package, reference = Package(folder), Reference(kinds)
    writer = Writer(package, reference)
    reference.put(0, "Python: the package copyrpc", "===========================", "")
    writer.text(0, ast.get_docstring(package.init) or "")
    reference.put(0, ".. py:module:: copyrpc", "")
    nodes = {name: package.found[name] for name in package.exported if name in package.found}
    errors = {name for name, node in nodes.items() if isinstance(node, ast.ClassDef) and package.lines[node] is package.lines[package.found["CopyrpcError"]]}
    sections: dict[str, list[ast.AST]] = {
        "Functions": [node for node in nodes.values() if not isinstance(node, ast.ClassDef)],
        "Classes": [node for name, node in nodes.items() if isinstance(node, ast.ClassDef) and name not in errors],
        "Exceptions": [nodes[name] for name in nodes if name in errors],
    }
    for title, members in sections.items():
        reference.put(0, title, "-" * len(title), "")
        for node in members:
            if isinstance(node, ast.ClassDef):
                writer.klass(node)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                writer.function(0, node, "function")
    others = [name for name in package.exported if name not in nodes]
    reference.put(0, "Constants", "---------", "", "Those that copyrpc.h has, with CRPC\\_ before the name, have its values.", "")
    for name in others:
        reference.put(0, f"- ``{name}``" + (reference.inline(f": CRPC_{name}") if f"CRPC_{name}" in kinds else ""))
    return "\n".join(reference.lines) + "\n"
