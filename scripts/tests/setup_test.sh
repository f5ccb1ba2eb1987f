#!/usr/bin/env bash
# setup_test.sh SOURCE_ROOT: that ./dev setup installs what is missing of the list that is for the system, by its package manager, and says what
# is not to be had. Package managers that note what they are told stand for the real ones. The lists have to be for the same things.
# shellcheck source-path=SCRIPTDIR source=../../tools/tests/tap.sh
. "$(dirname "$0")/../../tools/tests/tap.sh"
source=$1
work=$(mktemp -dt "a test.XXXXXX")
trap 'rm -rf "$work"' EXIT
copy=$work/copy
mkdir -p "$copy/scripts" "$copy/bindings/go" "$copy/build/tools/python-packages" "$work/bin"
cp "$source/dev" "$copy"
cp "$source/bindings/go/go.mod" "$copy/bindings/go"
cp -r "$source/scripts/dev" "$source"/scripts/packages-*.txt "$copy/scripts"
{ /usr/bin/python3 --version; cat "$source/scripts/packages-python.txt"; } > "$copy/build/tools/python-packages/wanted" # as if PyPI had brought them

# The package managers: $work/installed has what is installed, $work/lacking what is not to be had.
cat > "$work/bin/manager" << 'END'
#!/bin/sh
program=${0##*/} folder=${0%/bin/*}
for last; do :; done
# listed FILE NAME: without another process, since it is asked of every package.
listed() { while read -r line; do [ "$line" != "$2" ] || return 0; done < "$folder/$1"; return 1; }
case "$program $1" in
"rpm -q") listed installed "$last" ;;
"dpkg-query -W") listed installed "$last" && echo "install ok installed" ;;
"apt-cache show") ! listed lacking "$last" ;;
"dnf install"|"apt-get install")
    echo "$program $*" >> "$folder/log"
    shift
    for name; do
        case $name in
        -*) ;;
        *) listed lacking "$name" || echo "$name" >> "$folder/installed" ;;
        esac
    done ;;
*) echo "$program $*" >> "$folder/log" ;;
esac
END
chmod +x "$work/bin/manager"
for program in rpm dnf apt-get apt-cache dpkg-query; do
    ln -s manager "$work/bin/$program"
done
printf '#!/bin/sh\nexec "$@"\n' > "$work/bin/sudo"
chmod +x "$work/bin/sudo"

# on OS_RELEASE [LACKING...]: what setup says there, where nothing is installed yet.
on() {
    printf '%b' "$1" > "$work/os-release"
    shift
    : > "$work/installed"
    : > "$work/log"
    printf '%s\n' "$@" > "$work/lacking"
    again
}
again() { DEV_OS_RELEASE=$work/os-release PATH=$work/bin:$PATH "$copy/dev" setup > "$work/said" 2>&1; }
names() { sed 's/#.*//; s/|.*//; s/[[:space:]]*$//; /^$/d' "$source/scripts/packages-$1.txt" | sort -u; }
has() { grep -q -- "$1" "$2" || { echo "no '$1' in:"; cat "$2"; return 1; }; }
lacks() { ! grep -- "$1" "$2"; }
# all_of LIST: all of it is installed.
all_of() { diff <(names "$1") <(sort -u "$work/installed" | comm -12 - <(names "$1")); }

check "Rocky 9: ends well" on 'ID="rocky"\nVERSION_ID="9.4"\n'
check "Rocky 9: dnf installs its list" all_of rocky-9
check "Rocky 9: CRB and EPEL are enabled before" has 'dnf config-manager --set-enabled crb' "$work/log"
check "Rocky 9: no comment is taken for a package" lacks 'libvirt' "$work/log"
check "Rocky 9: apt is left alone" lacks '^apt' "$work/log"
: > "$work/log"
check "Rocky 9: does nothing the second time" again
check "Rocky 9: really" diff /dev/null "$work/log"
check "AlmaLinux 9: ends well" on 'ID="almalinux"\nVERSION_ID="9.5"\n' mandoc stress-ng
check "AlmaLinux 9: says what is not to be had" has 'not to be had.*mandoc stress-ng$' "$work/said"
check "Ubuntu 24.04: ends well" on 'ID=ubuntu\nVERSION_ID="24.04"\n'
check "Ubuntu 24.04: apt installs its list" all_of ubuntu-24.04
check "Ubuntu 24.04: dnf is left alone" lacks '^dnf' "$work/log"
check "Debian: ends well" on 'ID=debian\nVERSION_ID="12"\n' libssl3t64
check "Debian: apt installs the alternative that there is" has '^libssl3$' "$work/installed"
check "Debian: and not the other" lacks 'libssl3t64' "$work/installed"
check "another Ubuntu: ends well" on 'ID=ubuntu\nVERSION_ID="22.04"\n'
check "another Ubuntu: apt installs Debian's list" all_of debian
check "a system that says nothing of itself: Debian's list, too" on ''
check "really" all_of debian
rm "$work/os-release"
: > "$work/installed"
check "nor is there an os-release: the same" again
check "really, too" all_of debian

# What is in one list for a purpose, is to be in the others: the heads of their parts are the same.
purposes() { sed '1,/^$/d' "$source/scripts/packages-$1.txt" | awk 'before == "" && /^# / { print } { before = $0 }'; }
check "the lists have some purposes" [ "$(purposes debian | wc -l)" -gt 8 ]
for list in ubuntu-24.04 rocky-9; do
    check "the list of $list is for the same purposes" diff <(purposes debian) <(purposes "$list")
done
plan
