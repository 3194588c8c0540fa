package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/train"
)

// pathsOf are the values of a configuration that name a file or folder.
func pathsOf(s *train.Spec) map[string]*string {
	paths := map[string]*string{
		"base_model": &s.BaseModel, "output_dir": &s.OutputDir, "lora.init_from": &s.LoRA.InitFrom, "training.resume": &s.Training.Resume,
		"dataset.path": &s.Dataset.Path, "dataset.val_path": &s.Dataset.ValPath, "dataset.cache_dir": &s.Dataset.CacheDir,
		"expect.reference": &s.Expect.Reference, "tracking.metrics_file": &s.Tracking.MetricsFile,
	}
	for i := range s.Dataset.Sources {
		paths[fmt.Sprintf("dataset.sources[%d].path", i)] = &s.Dataset.Sources[i].Path
	}
	for i := range s.Dataset.ValSources {
		paths[fmt.Sprintf("dataset.val_sources[%d].path", i)] = &s.Dataset.ValSources[i].Path
	}
	return paths
}

// expandHome writes the user's home folder for a leading ~, as a shell does for words that it sees.
func expandHome(path string) string {
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
	*p.to = expandHome(s)
	return nil
}

// pathVar gives a command a flag that names a file or folder.
func pathVar(cmd *cobra.Command, to *string, name, short, text string) {
	cmd.Flags().VarP(pathFlag{to}, name, short, text)
}

// plainFile refuses what is there and is no file: opening a named pipe waits for ever.
func plainFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // whoever opens it says so
	case err != nil:
		return err
	}
	return regular.Check(path, info)
}

// writable refuses a file that can't be written, before any work: its folder isn't there (a misspelt path makes no
// folders), it is a link or no regular file, or it is a file that this command did not write. what names the files that it
// writes, marks are texts of which one is in the first 4 KiB of each.
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

// plainFiles refuses a folder of a model, adapter or checkpoint with an entry that can't be read to its end.
func plainFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil //nolint:nilerr // whoever opens it says so
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			if err := plainFile(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// shellQuote writes a word so that a shell reads it as it is.
func shellQuote(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
