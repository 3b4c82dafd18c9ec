#!/bin/bash
# nvcc_opt.sh file.cu : compile alone for sm_90
cd /tmp/wt/opt
slot nvcc -I. -O3 -DNDEBUG -std=c++17 --expt-relaxed-constexpr -arch=sm_90 -Xcompiler=-fPIC,-ffp-contract=off ${EXTRA} -c $1 -o /tmp/opt_$(basename $1).o
