//go:build !linux

package doctor

// limits returns 0: this system's limits are not read.
func limits() (files, locked uint64) { return 0, 0 }

// diskOf does nothing: this system's file systems are not read.
func diskOf(_ string, f *Folder) {}
