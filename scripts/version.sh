#!/bin/sh
# Prints the version, which capi/copyrpc.h alone knows: "0.1.0".
awk '/#define CRPC_VERSION_(MAJOR|MINOR|PATCH) / { version = version dot $3; dot = "." } END { print version }' \
    "$(dirname "$0")/../capi/copyrpc.h"
