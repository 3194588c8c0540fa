package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
)

// Files of an adapter in PEFT's format.
const (
	adapterConfig  = "adapter_config.json"
	adapterWeights = "adapter_model.safetensors"
)

// Snapshot lists a repository's files in the cache.
type Snapshot struct {
	Dir   string   `json:"dir"` // the snapshot's folder, or the folder to which it was copied
	Files []string `json:"files"`
	Bytes int64    `json:"bytes"`
}

// Errors for names that no hub can have.
var (
	ErrBadName     = errors.New("no hub name")
	ErrBadRevision = errors.New("not a revision")
	ErrBadPattern  = errors.New("no pattern")
)

// Fetch downloads files of the model repository called name ("org/name") into the cache. include lists patterns of
// path.Match for a file's path or its last element; without patterns it fetches what loading a model or an adapter
// needs. It skips files that the cache has and continues interrupted ones.
func Fetch(ctx context.Context, name string, o Options, include []string) (s Snapshot, err error) {
	fail := func(err error) (Snapshot, error) { return Snapshot{}, fmt.Errorf("download %s: %w", name, err) }
	if strings.Count(name, "/") != 1 || checkRepo(name) != nil {
		return Snapshot{},
			fmt.Errorf("download: %q is %w: the form is org/name, with @REVISION behind it where one is meant",
				name, ErrBadName)
	}
	for _, p := range include {
		if _, err := path.Match(p, ""); err != nil {
			return Snapshot{}, fmt.Errorf("download: --include %q is %w: %w", p, ErrBadPattern, err)
		}
	}
	env, err := environment(o)
	if err != nil {
		return fail(err)
	}
	r, err := newRepo(modelRepo, name, o.Revision, env)
	if err != nil {
		return fail(err)
	}
	if env.offline {
		return fail(errors.New("HF_HUB_OFFLINE is set: unset it"))
	}
	c := newClient(r.kind, env, o)
	commit, names, err := r.list(ctx, c)
	if err != nil {
		return fail(err)
	}
	wanted := chosen(names, include)
	if len(include) == 0 {
		if slices.Contains(names, adapterConfig) {
			wanted = adapterFiles(names)
		} else if s.Dir, err = r.download(ctx, c); err != nil {
			return fail(fmt.Errorf("%w; --include '*' takes all of its files", err))
		}
	}
	if s.Dir == "" {
		if len(wanted) == 0 {
			return fail(fmt.Errorf("no file matches %s; it has %s", strings.Join(include, ", "),
				strings.Join(names, ", ")))
		}
		for _, f := range wanted {
			if err := r.file(ctx, c, commit, f); err != nil {
				return fail(fmt.Errorf("%s: %w", f, err))
			}
		}
		s.Dir = r.snapshot(commit)
		if r.revision != commit {
			if err := writeRef(filepath.Join(r.dir, "refs", filepath.FromSlash(r.revision)), commit); err != nil {
				return fail(err)
			}
		}
	}
	for _, f := range names {
		info, err := os.Stat(filepath.Join(s.Dir, filepath.FromSlash(f)))
		if err == nil && info.Mode().IsRegular() && (wanted == nil || slices.Contains(wanted, f)) {
			s.Files, s.Bytes = append(s.Files, f), s.Bytes+info.Size()
		}
	}
	slices.Sort(s.Files)
	return s, nil
}

// chosen returns the names that match a pattern.
func chosen(names, patterns []string) []string {
	var out []string
	for _, n := range names {
		if slices.ContainsFunc(patterns, func(p string) bool {
			whole, _ := path.Match(p, n)
			last, _ := path.Match(p, path.Base(n))
			return whole || last
		}) {
			out = append(out, n)
		}
	}
	return out
}

// adapterFiles returns the names of the files that loading an adapter reads, and of its card.
func adapterFiles(names []string) []string {
	var out []string
	for _, n := range append([]string{adapterConfig, adapterWeights, cardFile}, smallFiles...) {
		if slices.Contains(names, n) && n != configFile {
			out = append(out, n)
		}
	}
	return out
}

// CopyTo copies a snapshot's files into a folder under their names. If a file exists with other content, it returns an
// error and writes nothing.
func (s Snapshot) CopyTo(ctx context.Context, dir string) (Snapshot, error) {
	var todo []string
	for _, f := range s.Files {
		to := filepath.Join(dir, filepath.FromSlash(f))
		switch same, there, err := sameContent(filepath.Join(s.Dir, filepath.FromSlash(f)), to); {
		case err != nil:
			return Snapshot{}, fmt.Errorf("copy to %s: %w", dir, err)
		case there && !same:
			return Snapshot{}, fmt.Errorf("copy to %s: it has another %s already; name another folder", dir, f)
		case !there:
			todo = append(todo, f)
		}
	}
	for _, f := range todo {
		if err := ctx.Err(); err != nil {
			return Snapshot{}, err
		}
		if err := copyFile(filepath.Join(s.Dir, filepath.FromSlash(f)),
			filepath.Join(dir, filepath.FromSlash(f))); err != nil {
			return Snapshot{}, fmt.Errorf("copy to %s: %w", dir, err)
		}
	}
	return Snapshot{dir, s.Files, s.Bytes}, nil
}

func sameContent(a, b string) (same, there bool, err error) {
	if _, err := os.Lstat(b); os.IsNotExist(err) {
		return false, false, nil
	}
	x, err := regular.Open(a)
	if err != nil {
		return false, true, err
	}
	defer x.Close()
	y, err := regular.Open(b)
	if err != nil {
		return false, true, err
	}
	defer y.Close()
	p, q := make([]byte, 1<<16), make([]byte, 1<<16)
	for {
		n, errX := io.ReadFull(x, p)
		m, errY := io.ReadFull(y, q)
		if string(p[:n]) != string(q[:m]) {
			return false, true, nil
		}
		if errX != nil || errY != nil {
			return errX != nil && errY != nil, true, nil
		}
	}
}

// copyFile writes a temporary copy and renames it when it is complete.
func copyFile(from, to string) (err error) {
	in, err := regular.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it has its name by then
	_, err = io.Copy(f, in)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = atomicfile.Install(f.Name(), to)
	}
	return atomicfile.Room(err, to, info.Size())
}
