"""stage.py SOURCE_ROOT FOLDER GO_PAGE: brings what the site is made of into FOLDER: the Markdown of the repository at its paths, and beside each
file that it links a page that shows the file, or for copyrpc.h and the two packages their reference; that of Go is in GO_PAGE. So relative
links lead to the same things on the site as in the repository.

What has not changed keeps its time."""
import re
import subprocess
import sys
from pathlib import Path

import c_reference
import python_reference

LINK = re.compile(r"\]\(([^)\s]+)\)")
LANGUAGES = {".c": "c", ".h": "c", ".py": "python", ".go": "go", ".sh": "bash", ".json": "json"}
PICTURES = {".svg", ".png"}

root, folder = Path(sys.argv[1]), Path(sys.argv[2])
staged: set[Path] = set()


def put(path: str, text: str) -> None:
    target = folder / path
    staged.add(target)
    if not target.exists() or target.read_text() != text:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def page_of(path: str, text: str) -> str:
    """A page that shows a file of the repository."""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 3)
    return f"---\norphan: true\n---\n# {path}\n\n{fence}{LANGUAGES.get(Path(path).suffix, 'text')}\n{text.rstrip()}\n{fence}\n"


listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=root, check=True,
                        stdout=subprocess.PIPE, text=True)
pages = [page for page in listed.stdout.split() if (root / page).exists()]
linked = set()
for page in pages:
    text = (root / page).read_text()
    put(page, text)
    for target in LINK.findall(text):
        file = (root / page).parent / target.partition("#")[0]
        if "://" not in target and file.is_file() and file.suffix != ".md":
            linked.add(str(file.resolve().relative_to(root)))
for path in sorted(linked):
    text = (root / path).read_text()
    put(path, text)
    if path == "capi/copyrpc.h":
        fields = set(re.findall(r"^field (\S+)", (root / "capi/abi/layout.txt").read_text(), re.MULTILINE))
        put(path + ".rst", c_reference.reference_of(text, fields))
    elif path == "bindings/python/copyrpc/__init__.py":
        put(path + ".rst", python_reference.reference_of((root / path).parent, c_reference.kinds_of((root / "capi/copyrpc.h").read_text())))
    elif path == "bindings/go/copyrpc.go":
        put(path + ".md", Path(sys.argv[3]).read_text())
    elif Path(path).suffix not in PICTURES:
        put(path + ".md", page_of(path, text))

for old in folder.rglob("*"):
    if old.is_file() and old not in staged:
        old.unlink()
