#!/usr/bin/env bash
# rust_test.sh SIMNIC: that a Rust program works on simnic.
. "$(dirname "$0")/../run/tests/common.sh"
rustc=$(command -v rustc || command -v "$HOME/.cargo/bin/rustc")
if [ -z "$rustc" ]; then
    skip_all "there is no rustc: install the package rustc"
fi
work=$(mktemp -dt "a test.XXXXXX")
trap 'rm -rf "$work"' EXIT
check "rustc builds it" "$rustc" --edition 2021 -o "$work/program" "$(dirname "$0")/rust_program.rs"
check "it works without simnic, as far as files" "$work/program" files
check "it works on simnic" same "$("$simnic" run --private -- "$work/program" 2>&1)" "all well"
plan
