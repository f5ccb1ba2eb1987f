"""sbom.py FOLDER VERSION COMMIT TIME: says in SPDX 2.3 what a release has, in FOLDER/copyrpc-VERSION.spdx.json.

Each file of FOLDER is a package, with its checksum, and so is each thing that one of them needs: by what its programs and modules are linked with,
by what its metadata say. What is needed and not in DEPENDENCIES is an error, so that nothing is left out in silence. TIME, of the commit in
seconds, is that of the document. spdx-tools, from PyPI, writes and validates it."""
import hashlib
import re
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Optional

from contents import ARCHIVES, Contents, contents_of
from license_expression import get_spdx_licensing
from spdx_tools.spdx.model import (
    Actor,
    ActorType,
    Checksum,
    ChecksumAlgorithm,
    CreationInfo,
    Document,
    ExternalPackageRef,
    ExternalPackageRefCategory,
    File,
    Package,
    PackagePurpose,
    PackageVerificationCode,
    Relationship,
    RelationshipType,
    SpdxNoAssertion,
)
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document
from spdx_tools.spdx.writer.write_anything import write_file

HOME = "https://github.com/copyrpc/copyrpc"
MAKER = Actor(ActorType.ORGANIZATION, "copyrpc contributors")
LICENSE = "MIT"


@dataclass
class Dependency:
    name: str
    license: Optional[str]  # none is in SPDX's list
    home: str
    names: tuple[str, ...]  # what programs, modules and metadata call it
    version: Optional[str] = None


# Nothing of these is shipped: each system has its own.
DEPENDENCIES = [
    Dependency("rdma-core", "GPL-2.0-only OR Linux-OpenIB", "https://github.com/linux-rdma/rdma-core", ("libibverbs.so", "libmlx5.so", "librdmacm.so")),
    Dependency("glibc", "LGPL-2.1-or-later", "https://www.gnu.org/software/libc/", ("libc.so", "libm.so", "libdl.so", "libpthread.so", "ld-linux-x86-64.so",
                                                                                 "ld-linux-aarch64.so")),
    Dependency("zlib", "Zlib", "https://zlib.net", ("libz.so",)),
    Dependency("jansson", "MIT", "https://github.com/akheron/jansson", ("libjansson.so",)),
    Dependency("openssl", "Apache-2.0", "https://www.openssl.org", ("libcrypto.so",)),
    Dependency("cuda-driver", None, "https://developer.nvidia.com/cuda-toolkit", ("libcuda.so",)),
    Dependency("python", "PSF-2.0", "https://www.python.org", ("python",)),
    Dependency("cffi", "MIT", "https://github.com/python-cffi/cffi", ("cffi",)),
    Dependency("numpy", "BSD-3-Clause", "https://numpy.org", ("numpy",)),
    Dependency("opentelemetry-api", "Apache-2.0", "https://github.com/open-telemetry/opentelemetry-python", ("opentelemetry-api",)),
    Dependency("go", "BSD-3-Clause", "https://go.dev", ("go",)),
]
GO_LICENSES = {
    "github.com/cespare/xxhash/v2": "MIT",
    "github.com/go-logr/logr": "Apache-2.0",
    "github.com/go-logr/stdr": "Apache-2.0",
    "github.com/google/uuid": "BSD-3-Clause",
    "go.opentelemetry.io/auto/sdk": "Apache-2.0",
    "go.opentelemetry.io/otel": "Apache-2.0",
    "go.opentelemetry.io/otel/metric": "Apache-2.0",
    "go.opentelemetry.io/otel/sdk": "Apache-2.0",
    "go.opentelemetry.io/otel/trace": "Apache-2.0",
    "golang.org/x/sys": "BSD-3-Clause",
}


def dependency_of(name: str, needed_by: str) -> Dependency:
    module, _, version = name.partition(" ")
    if version and module in GO_LICENSES:
        return Dependency(module, GO_LICENSES[module], f"https://pkg.go.dev/{module}", (name,), version)
    plain = re.sub(r"\.so\.[0-9.]+$", ".so", name)
    for dependency in DEPENDENCIES:
        if plain in dependency.names:
            return dependency
    sys.exit(f"sbom.py: {needed_by} needs {name}, of which scripts/release/sbom.py does not know the licence: add it there")


def identifier(text: str) -> str:
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", text)


def checksums(path: Path) -> list[Checksum]:
    return [Checksum(ChecksumAlgorithm.SHA256, hashlib.sha256(path.read_bytes()).hexdigest())]


def address_of(name: str, version: str) -> Optional[str]:
    """As https://github.com/package-url/purl-spec has it, of what a package manager gets."""
    if match := re.fullmatch(r"([a-z0-9-]+)_[^_]+_([a-z0-9]+)\.deb", name):
        return f"pkg:deb/debian/{match[1]}@{version}?arch={match[2]}"
    if match := re.fullmatch(r"copyrpc-go(-otel)?-[^-]+\.zip", name):
        return f"pkg:golang/github.com/copyrpc/copyrpc/bindings/go{'/otel' if match[1] else ''}@v{version}"
    return f"pkg:pypi/copyrpc@{version}" if name.endswith(".whl") else None


def package_of(path: Path, version: str, contents: Optional[Contents]) -> Package:
    address = address_of(path.name, version)
    # As SPDX has it: of the sorted SHA-1s of the files.
    code = hashlib.sha1("".join(sorted(sha1 for _, sha1, _ in contents.files)).encode()).hexdigest() if contents else None
    license_of_it = get_spdx_licensing().parse(LICENSE)
    return Package(identifier(path.name), path.name, f"{HOME}/releases/download/v{version}/{path.name}", version=version, file_name=path.name, supplier=MAKER,
                   files_analyzed=contents is not None, verification_code=PackageVerificationCode(code) if code else None, checksums=checksums(path),
                   homepage=HOME, license_concluded=license_of_it, license_declared=license_of_it, copyright_text="2026 copyrpc contributors",
                   primary_package_purpose=PackagePurpose.SOURCE if path.name.endswith((".tar.gz", ".tar.xz")) else PackagePurpose.LIBRARY,
                   external_references=[ExternalPackageRef(ExternalPackageRefCategory.PACKAGE_MANAGER, "purl", address)] if address else [])


def outside(dependency: Dependency) -> Package:
    license_of_it = get_spdx_licensing().parse(dependency.license) if dependency.license else SpdxNoAssertion()
    return Package(identifier("needed-" + dependency.name), dependency.name, SpdxNoAssertion(), version=dependency.version, files_analyzed=False,
                   homepage=dependency.home, license_concluded=SpdxNoAssertion(), license_declared=license_of_it, copyright_text=SpdxNoAssertion(),
                   comment="It is not shipped.")


def document_of(folder: Path, version: str, commit: str, time: int) -> Document:
    made = CreationInfo("SPDX-2.3", "SPDXRef-DOCUMENT", f"copyrpc-{version}", f"{HOME}/spdx/copyrpc-{version}-{commit}",
                        [MAKER, Actor(ActorType.TOOL, "copyrpc-sbom")],
                        datetime.fromtimestamp(time, timezone.utc).replace(tzinfo=None), document_comment=f"Made of commit {commit}.")
    document = Document(made)
    paths = sorted(path for path in folder.iterdir() if path.name.endswith((*ARCHIVES, ".dsc", ".buildinfo")))
    source = folder / f"copyrpc-{version}-source.tar.gz"
    contents = {path: contents_of(path) for path in paths if path.name.endswith(ARCHIVES)}
    of_soname = {soname: path for path, each in contents.items() for soname in each.sonames}
    dependencies: dict[str, Dependency] = {}
    relations = []
    seen = set()
    for path in paths:
        own = identifier(path.name)
        relations.append(Relationship("SPDXRef-DOCUMENT", RelationshipType.DESCRIBES, own))
        document.packages.append(package_of(path, version, contents.get(path)))
        if path != source:
            relations.append(Relationship(own, RelationshipType.GENERATED_FROM, identifier(source.name)))
        if path not in contents:
            continue
        for number, (name, sha1, sha256) in enumerate(contents[path].files):
            file_id = f"{own}-{number}"
            document.files.append(File("./" + name, file_id, [Checksum(ChecksumAlgorithm.SHA1, sha1), Checksum(ChecksumAlgorithm.SHA256, sha256)]))
            relations.append(Relationship(own, RelationshipType.CONTAINS, file_id))
        for name in [*sorted(contents[path].needs), *sorted(contents[path].may_load - contents[path].needs)]:
            ours = of_soname.get(name) or (folder / f"copyrpc-go-{version}.zip" if name == f"github.com/copyrpc/copyrpc/bindings/go v{version}" else None)
            is_needed = name in contents[path].needs
            if ours == path or name == "libcopyrpc.so" and not is_needed:  # the library's own name
                continue
            if ours:
                target = identifier(ours.name)
            elif name == "libcopyrpc.so.0":  # where no package of it is made, the source has it
                target = identifier(source.name)
            else:
                dependency = dependency_of(name, path.name)
                dependencies[dependency.name] = dependency
                target = identifier("needed-" + dependency.name)
            if (own, target) not in seen:  # several libraries of one
                relations.append(Relationship(own, RelationshipType.DEPENDS_ON, target) if is_needed
                                 else Relationship(target, RelationshipType.OPTIONAL_DEPENDENCY_OF, own))
            seen.add((own, target))
    document.packages += [outside(dependencies[name]) for name in sorted(dependencies)]
    document.relationships = relations
    return document


def problems(document: Document) -> list[str]:
    return [message.validation_message for message in validate_full_spdx_document(document, "SPDX-2.3")]


def main() -> None:
    folder, version, commit, time = sys.argv[1:]
    path = Path(folder, f"copyrpc-{version}.spdx.json")
    write_file(document_of(Path(folder), version, commit, int(time)), str(path), validate=False)
    found = problems(parse_file(str(path)))  # of what was written, by whoever reads it
    if found:
        path.unlink()
        sys.exit("\n".join(["sbom.py: the SBOM is not valid:", *found[:20]]))


if __name__ == "__main__":
    main()
