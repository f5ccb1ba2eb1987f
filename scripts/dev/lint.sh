# what: checks format, clang-tidy and shell scripts
#help
#help Usage: ./dev lint [--fix]
#help
#help --fix formats the sources in place.
setup
cd "$root"
mapfile -t sources < <(git ls-files '*.c' '*.h' '*.cpp' '*.hpp')
if [ "${1:-}" = --fix ]; then
    say "formatting ${#sources[@]} files"
    clang-format -i "${sources[@]}"
    exit 0
fi
failed=0
say "clang-format on ${#sources[@]} files"
clang-format --dry-run -Werror "${sources[@]}" || failed=1
build clang
say "clang-tidy"
mapfile -t units < <(git ls-files 'capi/*.c' 'core/*.c' 'tools/*.c' 'examples/*.c' 'nccl/*.c' 'simnic/*.c' 'conformance/*.c' | grep -v /tests/)
printf '%s\n' "${units[@]}" | xargs -P "$(nproc)" -n 8 clang-tidy --quiet -p build/clang 2> build/lint.log || failed=1
say "shell scripts"
while read -r script; do
    bash -n "$script" || failed=1
done < <(git ls-files '*.sh' dev vm/run .ci/run)
[ $failed = 0 ] && say "clean" || die "not clean"
