package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/filename"
	"github.com/tierlora/tierlora/internal/regular"
)

// pathFlag is the value of a flag that names a file or folder.
type pathFlag struct{ to *string }

func (p pathFlag) String() string {
	if p.to == nil {
		return ""
	}
	return *p.to
}
func (p pathFlag) Type() string { return "path" }
func (p pathFlag) Set(s string) error {
	*p.to = filename.ExpandHome(s)
	return nil
}

// pathVar adds a flag that names a file or folder.
func pathVar(cmd *cobra.Command, to *string, name, short, text string) {
	cmd.Flags().VarP(pathFlag{to}, name, short, text)
}

// writable returns an error, before any work starts, if path cannot be written: its folder does not exist (a misspelt
// path creates no folders), it is a link or not a regular file, or it is a file that this command did not write. what
// describes the files that the command writes; each has one of marks in its first 4 KiB.
func writable(path, what string, marks ...string) error {
	if dir := filepath.Dir(path); dir != "." {
		if info, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: there is no folder %s", path, dir)
		} else if err != nil {
			return err
		} else if !info.IsDir() {
			return fmt.Errorf("%s: %s is no folder", path, dir)
		}
	}
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder: name a file in it", path)
	}
	return atomicfile.CheckOwn(path, what, marks...)
}

// plainFiles returns an error if a folder of a model, adapter or checkpoint has an entry that cannot be read to its
// end.
func plainFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil //nolint:nilerr // whoever opens it says so
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			if err := regular.CheckPath(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// isText returns an error for a text that is not UTF-8.
func isText(what, text string) error {
	for i, r := range text {
		if _, n := utf8.DecodeRuneInString(text[i:]); r != utf8.RuneError || n > 1 {
			continue
		}
		if strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff") {
			return fmt.Errorf(
				"%s is not UTF-8: it begins as UTF-16 does, which PowerShell and Notepad write; save it as UTF-8", what)
		}
		return fmt.Errorf("%s is not UTF-8: byte %d is 0x%02x", what, i+1, text[i])
	}
	return nil
}
