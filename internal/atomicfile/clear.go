package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Clear removes what processes that were killed in Write left in a folder: temporary files of files that are there, and
// of own, which may never have come to be. Nobody may be writing to the folder.
func Clear(dir string, own ...string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), ".")
		at := strings.LastIndexByte(name, '.')
		if !ok || at < 1 || at == len(name)-1 || strings.Trim(name[at+1:], "0123456789") != "" ||
			!e.Type().IsRegular() {
			continue
		}
		if of, serr := os.Lstat(filepath.Join(dir, name[:at])); serr == nil && of.Mode().IsRegular() ||
			slices.Contains(own, name[:at]) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}
