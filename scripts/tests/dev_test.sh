#!/usr/bin/env bash
# dev_test.sh SOURCE_ROOT: that every file of scripts/dev with a line "# what:" is a word of ./dev, and no other; that help and
# complaints come wherever and however ./dev is started; and that the documents name no word that is not there.
# shellcheck disable=SC2016 # the shells that tests start expand what is in single quotes
# shellcheck source-path=SCRIPTDIR source=../../tools/tests/tap.sh
. "$(dirname "$0")/../../tools/tests/tap.sh"
source=$1
work=$(mktemp -dt "a test.XXXXXX")
trap 'rm -rf "$work"' EXIT
# A copy in which words can be added, at a path with a space, which other users may read.
copy=$work/"a b"
mkdir -p "$copy/scripts"
cp "$source/dev" "$copy"
cp -r "$source/scripts/dev" "$copy/scripts"
printf '# what: prints its arguments\n#help\n#help Usage: ./dev parrot [WORD...]\nprintf "%%s\\n" "$root" "$@"\n' > "$copy/scripts/dev/parrot.sh"
printf 'echo this is no word\n' > "$copy/scripts/dev/shared.sh"
chmod -R a+rX "$work"

same() { [ "$1" = "$2" ] || { echo "$1"; echo "is not"; echo "$2"; return 1; }; }
has() { grep -q -- "$2" <<< "$1" || { echo "no '$2' in:"; echo "$1"; return 1; }; }
# STATUS WORDS COMMAND...: ends with the status, prints nothing to stdout, and the words to stderr.
complains() {
    local status=0 said
    said=$("${@:3}" 2>&1 > "$work/stdout") || status=$?
    [ $status = "$1" ] || { echo "status $status: $said"; return 1; }
    same "$(cat "$work/stdout")" "" && has "$said" "$2"
}

usage=$("$source/dev" --help)
check "--help: status 0" "$source/dev" --help
check "help is the same" same "$("$source/dev" help)" "$usage"
without() { "$source/dev" > "$work/usage"; [ $? = 2 ] && same "$(cat "$work/usage")" "$usage"; }
check "without a word: the same, status 2" without
words=()
for file in "$source"/scripts/dev/*.sh; do
    word=$(basename "$file" .sh)
    grep -q '^# what: .' "$file" || { check "$word.sh is no word" complains 2 "no word '$word'" "$source/dev" "$word" --help; continue; }
    words+=("$word")
    check "$word is listed" has "$usage" "^  $word  *[a-z]"
    text=$("$source/dev" "$word" --help)
    check "$word --help tells its usage" has "$text" "^Usage: ./dev $word"
    check "$word -h and help $word are the same" same "$("$source/dev" "$word" -h; "$source/dev" help "$word")" "$text
$text"
    check "$word has one line that says what it does" same "$(grep -c '^# what: ' "$file")" 1
done
check "some words are there" [ ${#words[@]} -gt 9 ]

check "a new file is a new word" has "$("$copy/dev" --help)" "^  parrot .*prints its arguments"
check "arguments come through" same "$("$copy/dev" parrot "a  b" '*' --help)" "$copy
a  b
*
--help"
check "a file without the line is none" complains 2 "no word 'shared'" "$copy/dev" shared
check "unknown words: suggests one" complains 2 "did you mean ./dev parrot?" "$copy/dev" parot
check "unknown words: the beginning of one" complains 2 "did you mean ./dev mutations?" "$copy/dev" mutat
check "unknown words: lists them" complains 2 "the words are .*parrot" "$copy/dev" xxxxxxxx
check "unknown words: suggests none that is far" complains 2 "there is no word 'xxxxxxxx'\$" "$copy/dev" xxxxxxxx
for word in ../dev/parrot 'parrot test' '*' -x parrot.sh; do
    check "'$word' is no word" complains 2 "there is no word '" "$copy/dev" "$word"
done

# --- wherever and however
ln -s "$copy/dev" "$work/link"
ln -s "$work/link" "$work/link2"
check "from another folder" same "$(cd / && "$copy/dev" parrot)" "$copy"
check "by a relative path" same "$(cd "$copy/scripts" && ../dev parrot)" "$copy"
check "through links" same "$(cd / && "$work/link2" parrot)" "$copy"
check "as an argument of bash, with CDPATH" same "$(cd "$copy" && CDPATH=/:$work bash dev parrot)" "$copy"
check "with stdin closed" same "$("$copy/dev" parrot <&-)" "$copy"
check "with an almost empty environment" same "$(env -i PATH="$PATH" "$copy/dev" parrot)" "$copy"
for locale in C tr_TR.UTF-8 xx_XX; do
    check "with LC_ALL=$locale" same "$(LC_ALL=$locale "$copy/dev" help parrot 2> "$work/stderr")" "$("$copy/dev" help parrot)"
done
check "with a umask that lets nobody read" same "$(umask 777; "$copy/dev" parrot)" "$copy"
another() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
if [ "$(id -u)" = 0 ] && another test -x "$copy/dev"; then # who cannot reach TMPDIR has no copy to start
    check "as another user" same "$(cd / && another "$copy/dev" parrot)" "$copy"
fi

# --- a build of the last revision
# What `build thread` compiles is what the tests of suite parts need, as the build files have them now.
old=$work/old
mkdir -p "$old/bindings/go"
cp "$source/bindings/go/go.mod" "$old/bindings/go"
echo "option('test_go', type: 'feature')" > "$old/meson_options.txt"
printf 'int main(void) { return 0; }\n' > "$old/one.c"
cp "$old/one.c" "$old/two.c"
printf '%s\n' "project('copyrpc', 'c')" "test('part', executable('one', 'one.c'), suite: 'parts')" > "$old/meson.build"
of_thread() { root=$old bash -c '. "$1/scripts/dev/common.sh"; build thread' . "$source"; }
check "a build is made of what its tests need" of_thread
sleep 1.1 # ninja takes a file that is not newer for one that has not changed
sed -i "s/'one/'two/g" "$old/meson.build"
check "and of what they need later" of_thread
check "which is there" [ -x "$old/build/thread/two" ]
echo 'nonsense(' >> "$old/meson.build"
check "build files that are wrong: it says so" complains 1 "configuring failed; the whole log is build/thread.log" of_thread

# --- what documents and messages name
mapfile -d '' -t documents < <(cd "$source" && find . -path ./build -prune -o -path ./.git -prune -o -type f \
    \( -name '*.md' -o -name '*.sh' -o -name '*.py' -o -name '*.[ch]' -o -name '*.go' -o -name meson.build \) \
    ! -path ./scripts/tests/dev_test.sh -print0)
named=$(cd "$source" && grep -hoE '\./dev +[a-z][a-z_-]*' "${documents[@]}" | awk '{ print $2 }' | sort -u)
check "documents name some words" has "$named" '^test$'
for word in $named; do
    check "./dev $word, which documents name, is there" grep -qx "$word" <<< "$(printf '%s\n' "${words[@]}" help)"
done
plan
