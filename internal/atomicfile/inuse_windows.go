package atomicfile

import (
	"errors"
	"time"

	"golang.org/x/sys/windows"
)

// WhileInUse does what a file or folder must not be open for, such as renaming and removing, and tries again for a
// second where it is: another process that reads it, a virus scanner also, ends soon.
func WhileInUse(do func() error) error {
	for wait := time.Millisecond; ; wait *= 2 {
		err := do()
		if wait > 512*time.Millisecond || !errors.Is(err, windows.ERROR_SHARING_VIOLATION) &&
			!errors.Is(err, windows.ERROR_ACCESS_DENIED) {
			return err
		}
		time.Sleep(wait)
	}
}
