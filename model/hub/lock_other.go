//go:build !unix && !windows

package hub

import "context"

// lock: without locks of files two downloads of one file at a time are not kept apart.
func lock(context.Context, string) (unlock func(), err error) { return func() {}, nil }
