package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/regular"
)

// Choose selects the wanted files of a data set from the names of all files and the text of its card (README.md), which
// is nil if there is none. Its error describes what the data set lacks.
type Choose func(names []string, card []byte) ([]string, error)

const (
	cardFile = "README.md"
	maxCard  = 4 << 20
)

// IsDatasetName reports whether a path can be the name of a data set: it has the form org/name and no file of that path
// exists.
func IsDatasetName(name string) bool {
	return strings.Count(name, "/") == 1 && !looksLikePath(name) && checkRepo(name) == nil
}

// IsMissingFile reports whether name, which does not exist here, means a file or folder rather than a hub repository:
// it does not have the form org/name, or a folder called org exists.
func IsMissingFile(name string) bool {
	repo, _ := SplitRevision(name)
	if !IsDatasetName(repo) {
		return true
	}
	info, err := os.Stat(path.Dir(repo))
	return err == nil && info.IsDir()
}

// Dataset returns the cache folder of the data set called name ("org/name") with the files that choose selects. It uses
// a snapshot that has them without network access.
func Dataset(ctx context.Context, name string, opts Options, choose Choose) (dir string, err error) {
	if !IsDatasetName(name) {
		return "", fmt.Errorf("find data set: %q is no hub name: the form is org/name", name)
	}
	env, err := environment(opts)
	if err != nil {
		return "", fmt.Errorf("find data set %s: %w", name, err)
	}
	r, err := newRepo(datasetRepo, name, opts.Revision, env)
	if err != nil {
		return "", fmt.Errorf("find data set %s: %w", name, err)
	}
	dir, cacheErr := r.cachedDataset(choose)
	if cacheErr == nil {
		return dir, nil
	}
	if opts.Download && !env.offline {
		if dir, err = r.downloadDataset(ctx, newClient(r.kind, env, opts), choose); err != nil {
			return "", fmt.Errorf("download data set %s: %w", name, err)
		}
		return dir, nil
	}
	return "", fmt.Errorf("find data set %s: there is no file or folder of that name, and in the cache %w\n%sfetch "+
		"it with `hf download --repo-type dataset %s`, or give a file",
		name, cacheErr, adviceToDownload(opts, env), name)
}

// cachedDataset returns the revision's snapshot if it has the files that choose selects.
func (r repo) cachedDataset(choose Choose) (string, error) {
	dir, err := r.cachedSnapshot()
	if err != nil {
		return "", err
	}
	var names []string
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return nil //nolint:nilerr // a link whose blob is gone is no file
		}
		name, err := filepath.Rel(dir, path)
		names = append(names, filepath.ToSlash(name))
		return err
	})
	if err != nil {
		return "", err
	}
	slices.Sort(names)
	var card []byte
	if slices.Contains(names, cardFile) {
		if card, err = readCard(filepath.Join(dir, cardFile)); err != nil {
			return "", err
		}
	}
	if _, err := choose(names, card); err != nil {
		return "", fmt.Errorf("%s %w", dir, err)
	}
	return dir, nil
}

// downloadDataset fetches the card and the files that choose selects. As for a model, it writes the ref last.
func (r repo) downloadDataset(ctx context.Context, c *client, choose Choose) (string, error) {
	commit, names, err := r.list(ctx, c)
	if err != nil {
		return "", err
	}
	dir := r.snapshot(commit)
	var card []byte
	if slices.Contains(names, cardFile) {
		if err := r.file(ctx, c, commit, cardFile); err != nil {
			return "", fmt.Errorf("%s: %w", cardFile, err)
		}
		if card, err = readCard(filepath.Join(dir, cardFile)); err != nil {
			return "", err
		}
	}
	wanted, err := choose(names, card)
	if err != nil {
		return "", fmt.Errorf("the revision %s %w", r.revision, err)
	}
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return "", fmt.Errorf("the hub's file list lacks %q", name)
		}
		if err := r.file(ctx, c, commit, name); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
	}
	if r.revision == commit {
		return dir, nil
	}
	return dir, writeRef(filepath.Join(r.dir, "refs", filepath.FromSlash(r.revision)), commit)
}

func readCard(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxCard {
		return nil, errors.New(cardFile + " is larger than 4 MiB")
	}
	return regular.ReadFile(path)
}
