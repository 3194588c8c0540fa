// Package filename is about names of files as people write them: ~ for the home folder, and a name with a slip in it.
package filename

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/words"
)

// maxNames bounds the names of a folder that are looked at for one that was meant.
const maxNames = 10_000

// Nearest is what to say of a file that is not there: the name that may have been meant.
func Nearest(err error) string {
	var missing *fs.PathError
	if !errors.As(err, &missing) || !errors.Is(missing.Err, fs.ErrNotExist) ||
		!slices.Contains([]string{"open", "stat", "lstat"}, missing.Op) ||
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
	names = slices.DeleteFunc(names, func(n string) bool {
		return strings.HasPrefix(n, ".") && !strings.HasPrefix(name, ".")
	})
	if near := words.Within(name, names, max(1, len(strings.TrimSuffix(name, filepath.Ext(name)))/3)); near != "" {
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

// ExpandHome writes the user's home folder for a leading ~, as a shell does for words that it sees.
func ExpandHome(path string) string {
	rest, ok := strings.CutPrefix(path, "~")
	if !ok || rest != "" && !strings.HasPrefix(rest, "/") && !strings.HasPrefix(rest, string(filepath.Separator)) {
		return path
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return path
	}
	return filepath.Join(home, rest)
}
