//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package checkpoint

import "os"

// systemLock is left to the holder's sign of life.
func systemLock(*os.File) error { return errNoLocks }

// processExists can't be told here.
func processExists(int) bool { return true }
