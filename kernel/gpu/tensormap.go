//go:build gpu && linux

package gpu

/*
#include <cuda.h>
#include <stdlib.h>
#include <string.h>
static CUresult tensor_map(void *out, CUdeviceptr base, int rank, const cuuint64_t *dim, const cuuint64_t *stride,
	const cuuint32_t *box, int swizzle) {
	CUtensorMap *m = aligned_alloc(64, 128);
	cuuint32_t step[5] = {1, 1, 1, 1, 1};
	CUresult r = cuTensorMapEncodeTiled(m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, (void *)base, dim, stride, box, step,
		CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
	memcpy(out, m, 128);
	free(m);
	return r;
}
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// NewTensorMap describes a tensor of a 16-bit type for the copy engine (compute capability 9.0 and later). dims and box
// count elements, innermost first; strides are bytes between neighbours of every dimension but the first; swizzle is 0,
// 32, 64 or 128 bytes.
func NewTensorMap(base Ptr, dims, strides []int64, box []int, swizzle int) (t TensorMap, err error) {
	n := len(dims)
	sw := map[int]int{0: C.CU_TENSOR_MAP_SWIZZLE_NONE, 32: C.CU_TENSOR_MAP_SWIZZLE_32B, 64: C.CU_TENSOR_MAP_SWIZZLE_64B,
		128: C.CU_TENSOR_MAP_SWIZZLE_128B}
	mode, ok := sw[swizzle]
	if n < 1 || n > 5 || len(strides) != n-1 || len(box) != n || !ok {
		return t, fmt.Errorf("tensor map: %d dimensions, %d strides, %d box sizes, swizzle %d", n, len(strides),
			len(box), swizzle)
	}
	var d, st [5]C.cuuint64_t
	var b [5]C.cuuint32_t
	for i := range dims {
		d[i], b[i] = C.cuuint64_t(dims[i]), C.cuuint32_t(box[i])
	}
	for i := range strides {
		st[i] = C.cuuint64_t(strides[i])
	}
	r := C.tensor_map(unsafe.Pointer(&t), C.CUdeviceptr(base), C.int(n), &d[0], &st[0], &b[0], C.int(mode))
	return t, check(fmt.Sprintf("tensor map of %v in boxes of %v", dims, box), "cuTensorMapEncodeTiled", r)
}
