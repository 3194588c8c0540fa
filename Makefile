# make         the CPU-only program, pure Go
# make gpu     one program for CPU and NVIDIA GPUs; fetches the pinned CUDA parts once, needs no toolkit and no GPU
# make kernels compile the stale kernels and print registers, shared memory and spills
# make test    the CPU tests;  make test-gpu  the GPU package's tests (on a machine with a GPU)
# make proof   the programs of scripts/gpu-proof.sh, which proves the build on a machine with a GPU and without Go
# make ranks   those of scripts/ranks_check.sh, which proves training on several GPUs
.PHONY: all gpu kernels test test-gpu proof ranks vet
CUDA = eval "$$(scripts/cuda.sh)" &&

all:
	CGO_ENABLED=0 go build ./cmd/trainer

gpu: kernels
	$(CUDA) go build -tags gpu ./cmd/trainer

kernels:
	$(CUDA) python3 scripts/kernels.py -v

vet:
	CGO_ENABLED=0 go vet ./...
	$(CUDA) go vet -tags gpu ./...

test:
	go test ./...

test-gpu: kernels
	$(CUDA) go test -tags gpu -count=1 ./kernel/gpu/... ./kernel/cuda/...

proof: kernels
	mkdir -p build/proof
	$(CUDA) go build -tags gpu -ldflags='-s -w' -o build/proof/trainer ./cmd/trainer
	$(CUDA) for p in kernels=./kernel/cuda driver=./kernel/gpu train=./train infer=./infer selfcheck=./selfcheck tests=./tests bench=./bench command=./cmd/trainer; do \
		go test -c -tags gpu -ldflags='-s -w' -o build/proof/$${p%%=*}.test $${p#*=} || exit 1; done

ranks: kernels
	mkdir -p build/ranks
	$(CUDA) go build -tags gpu -ldflags='-s -w' -o build/ranks/trainer ./cmd/trainer
	$(CUDA) for p in kernels=./kernel/cuda train=./train; do \
		go test -c -tags gpu -ldflags='-s -w' -o build/ranks/$${p%%=*}.test $${p#*=} || exit 1; done
