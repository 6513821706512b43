#!/bin/sh
# arrows.sh passes a clean tree and catches every kind of planted violation.
set -eu
check=$(dirname "$0")/arrows.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/tools" "$dir/kernels/cuda" "$dir/libcommon"
for row in base model plan comm data ckpt grammar nn serve serve/sched serve/engine serve/api serve/http train bench bench/load route; do
    mkdir "$dir/libcommon/$row"
done
echo '#include "base/err.h"' >"$dir/libcommon/model/ok.c"
echo '#include <cuda_runtime.h>' >"$dir/kernels/cuda/ok.cu"
printf '#include <nccl.h>\n#include <mpi.h>\n' >"$dir/libcommon/comm/nccl.c"
echo '#include "serve/engine/engine.h"' >"$dir/libcommon/serve/http/ok.c"
printf '#include "train/loop.h"\n#include "kernels/ops.h"\n#include <stdio.h>\n' >"$dir/tools/ok.c"

if ! sh "$check" "$dir"; then
    echo "a clean tree was refused"
    exit 1
fi

planted() { # FILE LINE: FILE with LINE in it must be refused, and named
    echo "$2" >"$dir/$1"
    if out=$(sh "$check" "$dir"); then
        echo "not caught: $2 in $1"
        exit 1
    fi
    case $out in
    "$1:1: "*) ;;
    *)
        echo "wrong message for $2 in $1: $out"
        exit 1
        ;;
    esac
    rm "$dir/$1"
}
planted libcommon/base/a.c '#include "model/config.h"'
planted libcommon/plan/a.h '#include "comm/comm.h"'
planted libcommon/ckpt/a.c '#  include "data/dataset.h"'
planted libcommon/serve/api/a.c '#include "train/loop.h"'
planted libcommon/serve/api/a.c '#include "serve/http/http.h"'
planted libcommon/serve/engine/a.h '#include "serve/api/openai.h"'
planted libcommon/serve/sched/a.c '#include "serve/engine/request.h"'
planted libcommon/serve/sched/b.c '#include "nn/infer.h"'
planted libcommon/serve/http/a.c '#include "serve/http.h"'
planted tools/b.c '#include "serve/engine.h"'
planted libcommon/grammar/a.c '#include "data/tokenizer.h"'
planted libcommon/nn/a.c '#include "serve/engine/engine.h"'
planted libcommon/data/a.c '#include <mpi.h>'
planted libcommon/bench/a.c '#include <mpi.h>'
planted libcommon/bench/a.c '#include "comm/internal.h"'
planted libcommon/bench/load/a.c '#include "comm/comm.h"'
planted libcommon/bench/load/a.c '#include "bench/links.h"'
planted libcommon/route/a.c '#include "comm/comm.h"'
planted libcommon/serve/http/a.c '#include "route/conf.h"'
planted libcommon/comm/a.c '#include "bench/simulate.h"'
planted libcommon/train/a.c '#include "bench/links.h"'
planted tools/a.c '#include "serve/engine/priv.h"'
planted libcommon/plan/a.c '#include "kernels/device.h"'
planted libcommon/train/a.c '#include <cuda_runtime.h>'
planted libcommon/nn/a.c '#include "helper.h"'
planted libcommon/nn/b.c '#include "libcommon/base/err.h"'
planted kernels/a.c '#include "base/err.h"'
planted kernels/cuda/a.cu '#include "base/err.h"'
planted tools/a.c '#include "tools/b.c"'
planted tools/a.c '#include "../tests/b.h"'
planted tools/a.c '#include "nosuchrow/b.h"'
planted libcommon/serve/engine/a.c 'pthread_cond_timedwait(&c, &mu, &t);'
# SPDX-License-Identifier: Apache-2.0
