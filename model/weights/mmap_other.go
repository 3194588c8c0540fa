//go:build !unix

package weights

import "github.com/tierlora/tierlora/internal/regular"

// mapFile reads the whole file, on systems without memory mapping.
func mapFile(path string) (mapping, error) {
	data, err := regular.ReadFile(path)
	return mapping{data: data, unmap: func() error { return nil }}, err
}

func release(_, _ []byte) {}
