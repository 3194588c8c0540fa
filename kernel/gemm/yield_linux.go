package gemm

import "syscall"

// yield lets another thread have this processor, if one waits for it.
func yield() { syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) } //nolint:errcheck // it cannot fail
