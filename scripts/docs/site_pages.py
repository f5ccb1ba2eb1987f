"""site_pages.py: what the site makes of our Markdown, which knows nothing of Sphinx.

- The front page, docs/README.md, lists the pages below headings. The navigation has the same lists.
- A link to a source file leads to the page that stage.py has made of it.
- A name of copyrpc.h in code leads to the reference.
- A line **C**, **Python** or **Go** is a tab, with its neighbours, and with the blocks of code and the names of files behind it.
"""
from __future__ import annotations

import builtins
import re
from pathlib import PurePosixPath
from typing import Any

import c_reference
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.transforms import SphinxTransform

LABELS = ("C", "Python", "Go")
CAPTION = re.compile(r"[\w.]+:")
LISTED = re.compile(r"^- \[([^]]*)\]\(([^)#]+)\)", re.MULTILINE)


def document_of(page: str, target: str) -> str:
    """The document to which a relative link of a page leads."""
    parts: list[str] = []
    for part in (PurePosixPath(page).parent / target).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts).removesuffix(".md")


def navigation(app: Sphinx, name: str, content: list[str]) -> None:
    """Appends a toctree for each list of the front page."""
    if name != app.config.root_doc:
        return
    for section in content[0].split("\n## ")[1:]:
        caption, _, text = section.partition("\n")
        entries = [f"{title} </{document_of(name, target)}>" for title, target in LISTED.findall(text)]
        if entries:
            content[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(entries) + "\n```\n"


class SourceLinks(SphinxTransform):
    """Before Sphinx copies files that are linked."""

    default_priority = 5

    def apply(self, **kwargs: Any) -> None:
        for link in list(self.document.findall(addnodes.download_reference)):
            reference = addnodes.pending_xref(
                "", *link.children, refdomain="doc", reftarget=document_of(self.env.docname, link["reftarget"]), refdoc=self.env.docname,
                reftype="myst", refexplicit=True, reftargetid=None)
            link.replace_self(reference)


class Names(SphinxTransform):
    default_priority = 8

    def apply(self, **kwargs: Any) -> None:
        for code in list(self.document.findall(nodes.literal)):
            kind = self.config.copyrpc_names.get(code.astext())
            if kind and isinstance(code.parent, (nodes.paragraph, nodes.emphasis, nodes.strong)):
                reference = addnodes.pending_xref(
                    "", nodes.literal(code.astext(), code.astext()), refdomain="c", reftype=kind, reftarget=code.astext(), refdoc=self.env.docname,
                    refexplicit=True)
                code.replace_self(reference)


class Builtins(SphinxTransform):
    """The type `bytes` is Python's own, and not an attribute of that name."""

    default_priority = 9

    def apply(self, **kwargs: Any) -> None:
        for reference in list(self.document.findall(addnodes.pending_xref)):
            if reference["refdomain"] == "py" and hasattr(builtins, reference["reftarget"]):
                reference.replace_self(reference.children)


class OneTitle(SphinxTransform):
    """A page with several headings of the first level has the later ones below the first, which is its title."""

    default_priority = 7

    def apply(self, **kwargs: Any) -> None:
        first, *others = [node for node in self.document.children if isinstance(node, nodes.section)] or [None]
        for section in others:
            self.document.remove(section)
            first.append(section)


def label_of(node: nodes.Node) -> str:
    """Of a paragraph with a label alone; the parser leaves empty texts around it."""
    if not isinstance(node, nodes.paragraph) or node.astext() not in LABELS:
        return ""
    return node.astext() if any(isinstance(child, nodes.strong) for child in node.children) else ""


def is_caption(node: nodes.Node) -> bool:
    return isinstance(node, nodes.paragraph) and bool(CAPTION.fullmatch(node.astext()))


def tab(label: str, content: list[nodes.Node]) -> nodes.Node:
    return nodes.container(
        "", nodes.rubric(label, label, classes=["sd-tab-label"], sync_id=label, sync_group="language"),
        nodes.container("", *content, is_div=True, design_component="tab-content", classes=["sd-tab-content"]),
        is_div=True, design_component="tab-item", classes=["sd-tab-item"])


class Tabs(SphinxTransform):
    default_priority = 6

    def apply(self, **kwargs: Any) -> None:
        for first in list(self.document.findall(lambda node: bool(label_of(node)))):
            parent = first.parent
            if parent is None or first not in parent.children:
                continue  # it is in a tab already, with its neighbours
            start = end = parent.index(first)
            tabs: list[tuple[str, list[nodes.Node]]] = []
            for node in parent.children[start:]:
                if label_of(node):
                    tabs.append((label_of(node), []))
                elif isinstance(node, (nodes.literal_block, nodes.comment)) or is_caption(node):
                    tabs[-1][1].append(node)
                else:
                    break
                end += 1
            if len(tabs) < 2:
                continue
            parent[start:end] = [nodes.container(
                "", *(tab(label, content) for label, content in tabs), is_div=True, design_component="tab-set", classes=["sd-tab-set"])]


def front_page(app: Sphinx, error: Exception | None) -> None:
    """index.html leads to the front page, whose place is that of its Markdown."""
    if not error:
        (app.outdir / "index.html").write_text(
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>copyrpc</title>'
            f'<meta http-equiv="refresh" content="0; url={app.config.root_doc}.html"></head>'
            f'<body><a href="{app.config.root_doc}.html">copyrpc</a></body></html>\n')


def read_names(app: Sphinx, config: Config) -> None:
    config.copyrpc_names = c_reference.kinds_of((app.srcdir / "capi/copyrpc.h").read_text())


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("copyrpc_names", {}, "", types=[dict])
    app.connect("config-inited", read_names)
    app.connect("source-read", navigation)
    app.connect("build-finished", front_page)
    app.add_transform(OneTitle)
    app.add_transform(SourceLinks)
    app.add_transform(Tabs)
    app.add_transform(Names)
    app.add_transform(Builtins)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
