//go:build !unix

// Package cputime tells how much of the processors a program has used, which does not depend on what runs beside it.
package cputime

import "time"

var began = time.Now()

// Process returns the time since the process began: these systems do not tell it as others do.
func Process() time.Duration { return time.Since(began) }
