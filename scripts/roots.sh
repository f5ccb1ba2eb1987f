# shellcheck shell=bash disable=SC2154 # $work is whose sources this
# roots.sh: root folders of bare systems, in which things are tried as on a new machine. Sourced with say and die, and, for step, with $work set to the
# folder whose logs it writes. Needs root.

# in_root FOLDER [NAME=VALUE...] COMMAND...: as root there, with processes and mounts of its own, which end with the command. Of the environment, it
# has what is named here alone. The folder becomes a mount, as the root of any system is: otherwise nobody could make its mounts private.
in_root() {
    local folder=$1 variables=()
    shift
    while [[ $1 = *=* ]]; do
        variables+=("$1")
        shift
    done
    # shellcheck disable=SC2016 # the shell within expands these
    unshare --mount --pid --fork --kill-child sh -euc 'mount --bind "$1" "$1"; cd "$1"; shift
        mount -t proc proc proc; mount -t sysfs -o ro sysfs sys; mount -t tmpfs tmpfs dev/shm; mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
        exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"' \
        in_root "$folder" "${variables[@]}" chroot . "$@"
}

# sudo_for_root FOLDER [OPTION...]: a sudo there for lines that users type: whoever is root already needs none, and nobody is there to say yes to apt,
# which gets the options, too.
sudo_for_root() {
    local folder=$1
    shift
    # shellcheck disable=SC2016 # sudo expands these
    printf '#!/bin/sh\n[ "$1" != apt ] || { shift; set -- apt-get -y %s "$@"; }\nexec "$@"\n' "$*" > "$folder/usr/local/bin/sudo"
    chmod +x "$folder/usr/local/bin/sudo"
}

# trust_in_root FOLDER: whoever is between this machine and the registries, the programs there trust. Sets $trusting to variables for in_root.
trust_in_root() {
    cp /etc/ssl/certs/ca-certificates.crt "$1/etc/trusted.crt"
    # shellcheck disable=SC2034 # for whoever sources this
    trusting=(SSL_CERT_FILE=/etc/trusted.crt PIP_CERT=/etc/trusted.crt PIP_DISABLE_PIP_VERSION_CHECK=1)
}

# The distribution's own archives that apt knows here, as lines for another system.
archives_of_system() {
    # shellcheck source=/dev/null # of the system
    (. /etc/os-release
        # shellcheck disable=SC2016 # apt's words
        apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' "Origin: ${ID^}" | sort -u |
            awk -v codename="$VERSION_CODENAME" '$2 ~ "^" codename { print "deb", $1, $2, $3 }')
}

# bootstrap_root FOLDER: the system that this is, with nothing of what is installed here.
bootstrap_root() {
    local codename mirror components
    # shellcheck source=/dev/null # of the system
    codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mirror=$(archives_of_system | awk -v codename="$codename" '$3 == codename { print $2; exit }')
    components=$(archives_of_system | awk -v codename="$codename" '$3 == codename { print $4 }' | paste -sd ,)
    rm -rf --one-file-system "${1:?}.part"
    debootstrap --variant=minbase --components="$components" "$codename" "$1.part" "$mirror"
    archives_of_system > "$1.part/etc/apt/sources.list"
    mv "$1.part" "$1"
}

# base_root FOLDER: sees to it that a bare system is there.
base_root() {
    command -v apt-get > /dev/null || die "there is no apt-get here, by which a bare system could be made"
    command -v debootstrap > /dev/null || step "getting debootstrap" apt-get install -y --no-install-recommends debootstrap
    [ -e "$1/etc/os-release" ] || step "bootstrapping a bare system" bootstrap_root "$1"
}

# step NAME COMMAND...: its output goes to a log, of which the end is shown when it fails. Not for conditions, where bash forgets what -e is.
step() {
    local name=$1 log begun=$SECONDS status
    log=$work/logs/$(tr ' /' '--' <<< "$name").log
    shift
    set +e
    (set -e; "$@") > "$log" 2>&1 < /dev/null
    status=$?
    set -e
    [ $status = 0 ] || { tail -n 30 "$log" >&2; die "failed: $name; the whole log is ${log#"$root/"}"; }
    say "$name: $((SECONDS - begun)) s"
}
