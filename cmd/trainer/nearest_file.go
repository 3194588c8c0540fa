package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxNames bounds the names of a folder that are looked at for one that was meant.
const maxNames = 10_000

// nearestFile is what to say of a file that is not there: the name that may have been meant.
func nearestFile(err error) string {
	var missing *fs.PathError
	if !errors.As(err, &missing) || !errors.Is(missing.Err, fs.ErrNotExist) || !slices.Contains([]string{"open", "stat", "lstat"}, missing.Op) ||
		filepath.Clean(missing.Path) == "." || missing.Path == "" {
		return ""
	}
	// the first part of the path that is not there
	path := filepath.Clean(missing.Path)
	for {
		parent := filepath.Dir(path)
		if _, err := os.Stat(parent); err == nil || parent == path {
			break
		}
		path = parent
	}
	folder, name := filepath.Dir(path), filepath.Base(path)
	dir, err := os.Open(folder)
	if err != nil {
		return ""
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxNames)
	slices.Sort(names)
	names = slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, ".") && !strings.HasPrefix(name, ".") })
	if near := within(name, names, max(1, len(strings.TrimSuffix(name, filepath.Ext(name)))/3)); near != "" {
		at := filepath.Join(folder, near)
		if rest := strings.TrimPrefix(filepath.Clean(missing.Path), path); rest != "" {
			if _, err := os.Stat(at + rest); err == nil {
				at += rest
			}
		}
		if strings.HasPrefix(missing.Path, "."+string(filepath.Separator)) {
			at = "." + string(filepath.Separator) + at
		}
		return "; the nearest name is " + at
	}
	return ""
}
