# what: makes the documentation site, in build/docs/site
#help
#help Usage: ./dev docs
#help
#help Makes pages of all Markdown of the repository, of the sources to which it links, and references of C, Python and Go of what the sources
#help say, by Sphinx in the versions of scripts/docs/requirements.txt, which come from PyPI into build/tools/docs, once. Needs Go, and no build.
#help A warning is an error. The site needs no network: open build/docs/site/index.html in a browser.
setup
tools=$root/build/tools/docs output=$root/build/docs
mkdir -p "$tools" "$output/source"
wanted=$(/usr/bin/python3 --version; cat "$root/scripts/docs/requirements.txt")
if [ "$(cat "$tools/wanted" 2>/dev/null)" != "$wanted" ]; then
    say "installing Sphinx in build/tools/docs"
    rm -rf "$tools"
    if ! { /usr/bin/python3 -m venv "$tools" &&
        "$tools/bin/python" -m pip install --disable-pip-version-check -r "$root/scripts/docs/requirements.txt"; } > "$output/pip.log" 2>&1; then
        tail -n 3 "$output/pip.log" >&2
        die "PyPI did not bring Sphinx (the whole log is build/docs/pip.log)"
    fi
    printf '%s\n' "$wanted" > "$tools/wanted"
fi
go=$(find_go) || die "there is no Go of at least $(oldest_go), which the reference of Go needs"
. "$root/bindings/go/go_folders.sh"
export PYTHONDONTWRITEBYTECODE=1
export_go_folders /usr/bin/python3 "$go" "$output"
(cd "$root/scripts/docs/go_reference" &&
    GOFLAGS=-buildvcs=false GOTOOLCHAIN=local GOPROXY=off "$go" run . "$root/bindings/go" github.com/copyrpc/copyrpc/bindings/go) > "$output/go.md"
"$tools/bin/python" "$root/scripts/docs/stage.py" "$root" "$output/source" "$output/go.md"
rm -rf "$output/site" # pages that are no more
say "making the site"
DOCS_VERSION=$("$root/scripts/version.sh") "$tools/bin/python" -m sphinx --fresh-env --fail-on-warning --keep-going --quiet -c "$root/scripts/docs" \
    -d "$output/trees" "$output/source" "$output/site" || die "the site has warnings: see above"
say "the site is build/docs/site/index.html"
