//go:build !unix

package weights

import "os"

// mapFile reads the whole file where mapping is not available.
func mapFile(path string) (data []byte, unmap func() error, err error) {
	data, err = os.ReadFile(path)
	return data, func() error { return nil }, err
}
