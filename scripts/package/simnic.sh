# shellcheck shell=bash disable=SC2154 # $root and $packages are those of the word
# kind: an image of simnic for containers: built by its Containerfile, tried under the limits of a container
#help
#help Usage: ./dev package simnic [--keep]
#help
#help Does what packaging/simnic/Containerfile says, line by line, in root folders that debootstrap makes: no registry is asked for an image, and
#help no builder has to be there. Then runs simnic in what came of it, as a user without any rights, with 64 MiB of /dev/shm and nothing but a
#help loopback interface. With podman installed, it also runs there, under the default seccomp profile. Needs root and the network; takes three
#help minutes. With --keep, the image is left in build/package/simnic/image.
keep=
for word; do
    case $word in
    --keep) keep=1 ;;
    *) die "unknown argument $word; see ./dev package simnic --help" ;;
    esac
done
[ "$(id -u)" = 0 ] || exec sudo "$root/dev" package simnic "$@"
work=$packages
file=$root/packaging/simnic/Containerfile
command -v jq > /dev/null || die "there is no jq"
command -v debootstrap > /dev/null || die "there is no debootstrap: apt install debootstrap"

. "$root/scripts/roots.sh"
# A container as docker's is by default, but for its seccomp profile, and for more that is not there: a user with rights, capabilities, a network.
contained() { # FOLDER COMMAND...
    # shellcheck disable=SC2016 # expanded by the shell within
    timeout 120 unshare --mount --pid --net --ipc --uts --fork --kill-child sh -euc 'ip link set lo up; cd "$1"; shift; mount -t proc proc proc
        mount -t tmpfs -o size=64m tmpfs dev/shm
        mount -t tmpfs tmpfs tmp
        exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp chroot . setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --bounding-set=-all \
            --inh-caps=-all "$@"' contained "$@" < /dev/null
}

# ---- The Containerfile. What this does not understand, it refuses.

# The system that a tag of Debian's image is.
codename_of() {
    case $1 in
    docker.io/library/debian:12-slim) echo bookworm ;;
    docker.io/library/debian:13-slim) echo trixie ;;
    *) die "$file: which system is $1?" ;;
    esac
}
stage=0 folder='' inside=/ # of the stage that is being built
declare -A stages
from() { # IMAGE [AS NAME]
    local codename
    codename=$(codename_of "$1")
    if [ ! -e "$work/$codename" ]; then
        say "bootstrapping $codename"
        debootstrap --variant=minbase "$codename" "$work/$codename" > "$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; die "debootstrap failed"; }
    fi
    stage=$((stage + 1)) folder=$work/stage$stage inside=/
    cp -a "$work/$codename" "$folder"
    [ "${2:-}" != AS ] || stages[$3]=$folder
}
copy() { # [--from=STAGE] SOURCE... TARGET
    local source=$work/context target path name
    [[ $1 != --from=* ]] || { source=${stages[${1#--from=}]}; shift; }
    target=${*: -1}
    path=$(realpath -m "$folder/$([[ $target = /* ]] || echo "$inside")/$target")
    [[ $target != */ && $target != . && $# -le 2 ]] || mkdir -p "$path"
    for name in "${@:1:$#-1}"; do
        if [ -d "$source/$name" ]; then
            mkdir -p "$path"
            cp -a "$source/$name/." "$path/"
        else
            cp -a "$source/$name" "$path"
        fi
    done
}
command=()
instruction() { # WORD REST
    local words
    say "$1 $2"
    read -ra words <<< "$2"
    case $1 in
    FROM) from "${words[@]}" ;;
    WORKDIR) inside=$2 && mkdir -p "$folder$inside" ;;
    COPY) copy "${words[@]}" ;;
    RUN)
        # shellcheck disable=SC2016 # expanded by the shell within
        in_root "$folder" sh -euc 'cd "$1" && eval "$2"' RUN "$inside" "$2" > "$work/log" 2>&1 < /dev/null || { tail -n 30 "$work/log" >&2; die "failed: RUN $2"; } ;;
    CMD) mapfile -t command < <(jq -r '.[]' <<< "$2") ;;
    *) die "$file: $1 is not understood here" ;;
    esac
}

remove() { rm -rf --one-file-system "${work:?}"/{bookworm,trixie,stage*,context,image,podman}; }
trap '[ -n "$keep" ] || remove' EXIT
mkdir -p "$work"
remove
mkdir -p "$work/context"
(cd "$root" && git -c safe.directory="$root" ls-files -co --exclude-standard -z | tar --null --files-from - -cf -) | tar -xf - -C "$work/context"
# Lines that end with a backslash go on.
while read -r word rest; do
    instruction "$word" "$rest"
done < <(sed -e ':again' -e '/\\$/{N; s/\\\n *//; b again' -e '}' "$file" | grep -vE '^ *(#|$)')
mv "$folder" "$work/image"

# ---- What came of it.
pair='simnic run -- bash -euc "ib_write_bw -n 1000 > /dev/null & until ib_write_bw -n 1000 127.0.0.1; do kill -0 \$!; sleep 0.2; done"'
expect() { # REGEX COMMAND...: prints it
    local wanted=$1 printed
    shift
    printed=$("$@" 2>&1) || { echo "$printed" >&2; die "failed: ${*: -3}"; }
    grep -qE -- "$wanted" <<< "$printed" || { echo "$printed" >&2; die "'$wanted' was not printed"; }
}
[ ! -e "$work/image/usr/bin/gcc" ] || die "the image has what built it"
[ -z "$(find "$work/image" -xdev -name '*copyrpc*' ! -path '*/sim*')" ] || die "the image has more of copyrpc than simnic"
expect "PORT_ACTIVE" contained "$work/image" "${command[@]}"
expect "^ *65536 +1000 " contained "$work/image" sh -c "$pair"
say "without rights, with 64 MiB of /dev/shm: ibv_devinfo and ib_write_bw run"
if command -v podman > /dev/null; then
    # With storage of its own, on any kernel, and in a namespace where cgroups are those of version 2, which it wants. Its limits are ours.
    podman_here() {
        # shellcheck disable=SC2016 # expanded by the shell within
        timeout 300 unshare --mount sh -euc 'umount -R /sys/fs/cgroup 2> /dev/null || true; mount -t cgroup2 none /sys/fs/cgroup
            exec podman --root "$0/root" --runroot "$0/runroot" --storage-driver vfs --cgroup-manager cgroupfs "$@"' "$work/podman" "$@"
    }
    in_podman() {
        podman_here run --rm --network none --cgroups disabled --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 --cap-drop all --user 65534 \
            --security-opt no-new-privileges localhost/simnic "$@"
    }
    mkdir -p "$work/podman"
    tar -C "$work/image" --one-file-system -c . | podman_here import - localhost/simnic > /dev/null 2>&1 || die "podman does not take the image"
    expect "^Seccomp:.*2" in_podman cat /proc/self/status
    expect "PORT_ACTIVE" in_podman "${command[@]}"
    expect "^ *65536 +1000 " in_podman sh -c "$pair"
    say "under podman's seccomp profile: the same"
else
    say "there is no podman: nothing was tried under a seccomp profile"
fi
say "the image has $(du -sxm "$work/image" | cut -f1) MiB, of which $(du -sxm "$work/bookworm" | cut -f1) are Debian's"
