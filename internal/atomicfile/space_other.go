//go:build !linux && !darwin && !windows

package atomicfile

import (
	"errors"
	"syscall"
)

func freeBytes(string) (int64, bool) { return 0, false }

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) }
