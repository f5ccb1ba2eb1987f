#!/bin/sh
# source.sh ROOT VERSION FOLDER: packs what is committed in FOLDER/copyrpc-VERSION-source.tar.gz: sorted, with the commit's time and nobody's name.
set -eu
root=$1 version=$2 folder=$3
tar=$folder/.source.tar
git -C "$root" -c tar.umask=0022 archive --format=tar --prefix="copyrpc-$version/" --output="$tar" HEAD
gzip -9 -n < "$tar" > "$folder/copyrpc-$version-source.tar.gz"
rm "$tar"
