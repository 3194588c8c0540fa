package kernel

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size to which the advice is cut; where pages are larger, the system refuses it and nothing changes.
const hugePage = 2 << 20

// LargePages asks the system to hold memory that will be written as a whole in huge pages, where it gives them to those
// that ask: reading weights then takes fewer address translations. The contents don't change.
func LargePages(mem []byte) {
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(mem))) % hugePage)
	if n := (len(mem) - skip) / hugePage * hugePage; n > 0 {
		_ = unix.Madvise(mem[skip:skip+n], unix.MADV_HUGEPAGE) // advice: without it all works as well
	}
}
