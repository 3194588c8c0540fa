//go:build !linux

package kernel

// LargePages does nothing here.
func LargePages([]byte) {}
