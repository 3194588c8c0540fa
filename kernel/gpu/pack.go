package gpu

import (
	"encoding/binary"
	"fmt"
	"math"
)

// TensorMap is the driver's 128-byte description of a tiled tensor (CUtensorMap), passed to kernels by value.
type TensorMap [128]byte

// Param is where the compiled kernel expects one argument, as the driver tells it. Size 0 = not known.
type Param struct{ Offset, Size int }

const (
	maxArgs      = 48
	maxArgsBytes = 4096 // the driver's own limit
)

// argument returns the bytes and the alignment of one kernel argument. Only types of fixed size are taken: an int
// would be 8 bytes here and 4 in the kernel.
func argument(dst []byte, a any) (size, align int, err error) {
	switch v := a.(type) {
	case Ptr:
		binary.LittleEndian.PutUint64(dst, uint64(v))
		return 8, 8, nil
	case int64:
		binary.LittleEndian.PutUint64(dst, uint64(v))
		return 8, 8, nil
	case int32:
		binary.LittleEndian.PutUint32(dst, uint32(v))
		return 4, 4, nil
	case uint32:
		binary.LittleEndian.PutUint32(dst, v)
		return 4, 4, nil
	case float32:
		binary.LittleEndian.PutUint32(dst, math.Float32bits(v))
		return 4, 4, nil
	case TensorMap:
		return copy(dst, v[:]), 64, nil
	}
	return 0, 0, fmt.Errorf("%T is not a kernel argument; use gpu.Ptr, int32, uint32, int64, float32 or gpu.TensorMap",
		a)
}

// pack lays the arguments out as C does and returns their offsets. params, when known, is what the compiled kernel
// takes; a wrong count or size is an error that names the kernel and the argument.
func pack(kernel string, buf []byte, params []Param, args []any) (offsets []int, err error) {
	if len(args) > maxArgs {
		return nil, fmt.Errorf("%s: %d arguments, at most %d are supported", kernel, len(args), maxArgs)
	}
	if params != nil && len(params) != len(args) {
		return nil, fmt.Errorf("%s: %d arguments given, the kernel takes %d", kernel, len(args), len(params))
	}
	offsets = make([]int, len(args))
	at := 0
	for i, a := range args {
		var tmp [128]byte
		size, align, err := argument(tmp[:], a)
		if err != nil {
			return nil, fmt.Errorf("%s: argument %d: %w", kernel, i, err)
		}
		if params != nil && params[i].Size != size {
			return nil, fmt.Errorf("%s: argument %d: a %T has %d bytes, the kernel takes %d", kernel, i, a, size,
				params[i].Size)
		}
		at = (at + align - 1) / align * align
		if at+size > len(buf) {
			return nil, fmt.Errorf("%s: arguments need more than %d bytes", kernel, len(buf))
		}
		offsets[i] = at
		at += copy(buf[at:], tmp[:size])
	}
	return offsets, nil
}

// checkGrid holds a launch against the limits every supported device shares.
func checkGrid(kernel string, grid, block [3]int, shared, maxThreads int) error {
	for i, limit := range [3]int{math.MaxInt32, 65535, 65535} {
		if grid[i] < 1 || grid[i] > limit {
			return fmt.Errorf("%s: grid %v: element %d must be 1 to %d", kernel, grid, i, limit)
		}
	}
	for i, limit := range [3]int{1024, 1024, 64} {
		if block[i] < 1 || block[i] > limit {
			return fmt.Errorf("%s: block %v: element %d must be 1 to %d", kernel, block, i, limit)
		}
	}
	if n := block[0] * block[1] * block[2]; n > maxThreads {
		return fmt.Errorf("%s: block %v has %d threads, the kernel allows %d", kernel, block, n, maxThreads)
	}
	if shared < 0 {
		return fmt.Errorf("%s: %d bytes of dynamic shared memory", kernel, shared)
	}
	return nil
}
