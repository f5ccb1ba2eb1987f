#!/bin/sh
# ucx_rdma.sh: ends well if there is a UCX with RDMA; otherwise says why not. The package of Ubuntu 26.04 lacks its module for that.
program=$(command -v ucx_perftest) || { echo "there is no ucx_perftest: install ucx-utils"; exit 1; }
libraries=$(dirname "$(ldd "$program" | awk '$1 ~ /^libucs\.so/ { print $3 }')")
ls "$libraries"/ucx/libuct_ib.so* > /dev/null 2>&1 || { echo "the UCX here was packaged without RDMA: $libraries/ucx has no libuct_ib.so"; exit 1; }
