#!/bin/sh
# Fetches the pinned NVIDIA files that a GPU build needs (135 MB, once) and prints the environment for it.
#   eval "$(scripts/cuda.sh)" && python3 scripts/kernels.py && go build -tags gpu ./cmd/trainer
# They land in .cache/cuda-12.9 (ignored by git); TRAINER_CUDA names another folder. No CUDA toolkit is used.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
dir=${TRAINER_CUDA:-$root/.cache/cuda-12.9}
if [ ! -e "$dir/complete" ] || [ ! -e "$dir/nvidia/cuda_nvcc" ]; then
	mkdir -p "$dir"
	pins=$(mktemp)
	trap 'rm -f "$pins"' EXIT
	# first hash x86-64, second arm64
	cat >"$pins" <<-PINS
		nvidia-cuda-nvrtc-cu12==12.9.86 --hash=sha256:210cf05005a447e29214e9ce50851e83fc5f4358df8b453155d5e1918094dcb4 --hash=sha256:096d4de6bda726415dfaf3198d4f5c522b8e70139c97feef5cd2ca6d4cd9cead
		nvidia-cuda-nvcc-cu12==12.9.86 --hash=sha256:5d6a0d32fdc7ea39917c20065614ae93add6f577d840233237ff08e9a38f58f0 --hash=sha256:44e1eca4d08926193a558d2434b1bf83d57b4d5743e0c431c0c83d51da1df62b
		nvidia-cuda-runtime-cu12==12.9.79 --hash=sha256:25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3 --hash=sha256:83469a846206f2a733db0c42e223589ab62fd2fabac4432d2f8802de4bded0a4
		nvidia-nvfatbin-cu12==12.9.82 --hash=sha256:16cbfbd12287508212f22f42dff6ff51cf9b528b906f57f615b080da16dea1ea --hash=sha256:92d516bdb9287970cecbf855a0fd39d09599db806148038e1ed2cf0eaef92af2
		nvidia-nvtx-cu12==12.9.79 --hash=sha256:fec150986817f2b4e7eed72ed059f2dcb9ba3856b9a96134e448eac946a6952f --hash=sha256:d1f258e752294acdb4f61c3d31fee87bd0f60e459f1e2f624376369b524cd15d
	PINS
	python3 -m pip install -q --no-deps --only-binary=:all: --require-hashes --upgrade --target "$dir" -r "$pins" 1>&2
	touch "$dir/complete"
fi
echo "export TRAINER_CUDA='$dir'"
echo "export CGO_ENABLED=1"
echo "export CGO_CFLAGS='-O2 -g -I$dir/nvidia/cuda_runtime/include -I$dir/nvidia/nvtx/include'"
# before any real libcuda.so that gorgonia.org/cu's own -L flags would find, which would make the binary require a driver
echo "export CGO_LDFLAGS='-O2 -g -L$root/kernel/gpu/libcuda/stub'"
