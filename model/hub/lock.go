//go:build unix || windows

package hub

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
)

// lock waits until this process alone may write the blob. huggingface_hub locks the same file in the same way.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	f, err := atomicfile.Open(path, 0o666)
	if err != nil {
		return nil, err
	}
	for {
		held, err := tryLock(f)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if !held {
			return func() { f.Close() }, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
