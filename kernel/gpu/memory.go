//go:build gpu && linux

package gpu

/*
#include <cuda.h>
*/
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// Align is the alignment of an arena and the least that a plan should give its parts: wide loads, tensor maps and the
// vendor's matrix library all ask for no more.
const Align = 256

// Arena is one allocation of device memory. Parts of it are addressed by offset; who lies where is the caller's plan.
type Arena struct {
	Name  string
	Base  Ptr
	Bytes int64
}

// NewArena allocates bytes of device memory. name stands in errors ("activations").
func (d *Device) NewArena(name string, bytes int64) (*Arena, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("arena %s: %d bytes", name, bytes)
	}
	defer came(waitFor("allocate memory of the device"))
	p, err := cu.MemAlloc(bytes)
	if err != nil {
		free, total, _ := d.Free()
		return nil, fmt.Errorf("arena %s of %d bytes (%d of %d free): %w", name, bytes, free, total,
			wrap("allocate", "cuMemAlloc", err))
	}
	return &Arena{name, Ptr(p), bytes}, nil
}

// At returns the address of bytes bytes at offset, which must lie inside.
func (a *Arena) At(offset, bytes int64) (Ptr, error) {
	if offset < 0 || bytes < 0 || offset > a.Bytes-bytes {
		return 0, fmt.Errorf("arena %s: bytes %d to %d of %d", a.Name, offset, offset+bytes, a.Bytes)
	}
	return a.Base.Add(offset), nil
}

// Free gives the memory back; a second call does nothing.
func (a *Arena) Free() error {
	if a == nil || a.Base == 0 {
		return nil
	}
	defer came(waitFor("free memory of the device"))
	err := wrap("free arena "+a.Name, "cuMemFree", cu.MemFree(cu.DevicePtr(a.Base)))
	a.Base = 0
	return err
}

// Pinned is page-locked host memory: the only kind that copies asynchronously and at full speed.
type Pinned struct {
	Bytes []byte
	p     unsafe.Pointer
}

// NewPinned allocates n bytes of page-locked host memory.
func (d *Device) NewPinned(n int) (*Pinned, error) {
	defer came(waitFor("pin host memory"))
	var p unsafe.Pointer
	if err := check(fmt.Sprintf("pin %d bytes of host memory", n), "cuMemHostAlloc",
		C.cuMemHostAlloc(&p, C.size_t(n), C.CU_MEMHOSTALLOC_PORTABLE)); err != nil {
		return nil, err
	}
	return &Pinned{unsafe.Slice((*byte)(p), n), p}, nil
}

// Free gives the memory back; Bytes must not be used afterwards.
func (p *Pinned) Free() error {
	if p == nil || p.p == nil {
		return nil
	}
	defer came(waitFor("free pinned host memory"))
	err := check("free pinned memory", "cuMemFreeHost", C.cuMemFreeHost(p.p))
	p.p, p.Bytes = nil, nil
	return err
}

// HostPtr returns the device's address of page-locked memory, which is the host's: with unified addressing, which every
// 64-bit system has, kernels read and write such memory over the link.
func HostPtr(pinned []byte) Ptr { return Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(pinned)))) }

// View returns pinned memory as a slice of T.
func View[T any](p *Pinned) []T {
	var t T
	return unsafe.Slice((*T)(p.p), len(p.Bytes)/int(unsafe.Sizeof(t)))
}

// Upload copies a host slice to the device and waits for it.
func Upload[T any](dst Ptr, src []T) error {
	if len(src) == 0 {
		return nil
	}
	defer came(waitFor("copy to the device"))
	n := int64(len(src)) * int64(unsafe.Sizeof(src[0]))
	if err := cu.MemcpyHtoD(cu.DevicePtr(dst), unsafe.Pointer(&src[0]), n); err != nil {
		return wrap(fmt.Sprintf("copy %d bytes to the device", n), "cuMemcpyHtoD", err)
	}
	// From pageable memory the call returns once the bytes are staged; our streams do not wait for the default one.
	return check(fmt.Sprintf("copy %d bytes to the device", n), "cuStreamSynchronize", C.cuStreamSynchronize(nil))
}

// Download copies device memory into a host slice and waits for it.
func Download[T any](dst []T, src Ptr) error {
	if len(dst) == 0 {
		return nil
	}
	defer came(waitFor("copy from the device"))
	n := int64(len(dst)) * int64(unsafe.Sizeof(dst[0]))
	return wrap(fmt.Sprintf("copy %d bytes from the device", n), "cuMemcpyDtoH",
		cu.MemcpyDtoH(unsafe.Pointer(&dst[0]), cu.DevicePtr(src), n))
}

// CopyIn queues a copy from pinned host memory (bytes n from offset) to the device.
func (s *Stream) CopyIn(dst Ptr, src *Pinned, offset, n int64) error {
	if offset < 0 || n < 0 || offset > int64(len(src.Bytes))-n {
		return fmt.Errorf("copy to the device: bytes %d to %d of %d pinned", offset, offset+n, len(src.Bytes))
	}
	return check("copy to the device", "cuMemcpyHtoDAsync",
		C.cuMemcpyHtoDAsync(C.CUdeviceptr(dst), unsafe.Add(src.p, offset), C.size_t(n), s.c()))
}

// CopyOut queues a copy from the device to pinned host memory.
func (s *Stream) CopyOut(dst *Pinned, offset int64, src Ptr, n int64) error {
	if offset < 0 || n < 0 || offset > int64(len(dst.Bytes))-n {
		return fmt.Errorf("copy from the device: bytes %d to %d of %d pinned", offset, offset+n, len(dst.Bytes))
	}
	return check("copy from the device", "cuMemcpyDtoHAsync",
		C.cuMemcpyDtoHAsync(unsafe.Add(dst.p, offset), C.CUdeviceptr(src), C.size_t(n), s.c()))
}

// Copy queues a copy inside the device.
func (s *Stream) Copy(dst, src Ptr, n int64) error {
	return check("copy on the device", "cuMemcpyDtoDAsync",
		C.cuMemcpyDtoDAsync(C.CUdeviceptr(dst), C.CUdeviceptr(src), C.size_t(n), s.c()))
}

// Fill queues a fill with one byte value.
func (s *Stream) Fill(dst Ptr, v byte, n int64) error {
	return check("fill on the device", "cuMemsetD8Async",
		C.cuMemsetD8Async(C.CUdeviceptr(dst), C.uchar(v), C.size_t(n), s.c()))
}

// Fill32 queues a fill with n words of one value.
func (s *Stream) Fill32(dst Ptr, v uint32, n int64) error {
	return check("fill on the device", "cuMemsetD32Async",
		C.cuMemsetD32Async(C.CUdeviceptr(dst), C.uint(v), C.size_t(n), s.c()))
}
