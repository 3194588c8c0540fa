//go:build !windows

package atomicfile

// WhileInUse does what a file must not be open for on Windows. Here it may be.
func WhileInUse(do func() error) error { return do() }
