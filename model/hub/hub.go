// Package hub turns the name of a model or data set into a local folder: an existing folder, or a snapshot in the
// Hugging Face cache, which it can download.
//
// The cache has huggingface_hub's layout, so that both programs share files:
// <cache>/models--org--name/{blobs,refs,snapshots/<commit>}.
package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/model/weights"
)

// Options configures Resolve. Zero values are taken from the environment.
type Options struct {
	Download bool   // fetch what the cache lacks, unless HF_HUB_OFFLINE=1
	Revision string // branch, tag or commit; "" = main
	Endpoint string // "" = HF_ENDPOINT, else https://huggingface.co
	Token    string // "" = HF_TOKEN, else the file HF_TOKEN_PATH or $HF_HOME/token
	CacheDir string // "" = HF_HUB_CACHE, else $HF_HOME/hub
	// Progress, if set, is called while a file arrives, with the received and total bytes.
	Progress  func(file string, done, total int64)
	Transport http.RoundTripper // nil = a clone of http.DefaultTransport

	pause time.Duration // pause before the first retry, 0 = half a second; it doubles with each retry
}

// missingFolder is the error for a model folder that does not exist.
type missingFolder struct{ fs.PathError }

func (e *missingFolder) Error() string { return "find model: the folder " + e.Path + " does not exist" }
func (e *missingFolder) Unwrap() error { return &e.PathError }

// Resolve returns the folder of the model called name. An existing folder has precedence; otherwise name is "org/name"
// or "org/name@revision" on the hub, and the folder is its snapshot in the cache. A complete snapshot is used without
// network access.
func Resolve(ctx context.Context, name string, opts Options) (dir string, err error) {
	if name == "" {
		return "", errors.New("find model: the name is empty")
	}
	if info, err := os.Stat(name); err == nil {
		return name, checkFolder(name, info)
	} else if !errors.Is(err, fs.ErrNotExist) && looksLikePath(name) {
		return "", fmt.Errorf("find model: %w", err)
	}
	if looksLikePath(name) {
		return "", &missingFolder{fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}}
	}
	full := name
	if name, opts.Revision, err = withRevision(name, opts.Revision); err != nil {
		return "", fmt.Errorf("find model: there is no folder %q and it is no hub name: %w", full, err)
	}
	env, err := environment(opts)
	if err != nil {
		return "", fmt.Errorf("find model %s: %w", name, err)
	}
	r, err := newRepo(modelRepo, name, opts.Revision, env)
	if err != nil {
		return "", fmt.Errorf("find model %s: %w", name, err)
	}
	dir, cacheErr := r.cached()
	if cacheErr == nil {
		return dir, nil
	}
	if opts.Download && !env.offline {
		dir, err := r.download(ctx, newClient(r.kind, env, opts))
		if err != nil {
			return "", fmt.Errorf("download model %s: %w", name, err)
		}
		return dir, nil
	}
	return "", fmt.Errorf("find model %s: there is no folder of that name, and in the cache %w\n%sfetch it with "+
		"`trainer download %s`, or give a folder",
		full, cacheErr, adviceToDownload(opts, env), full)
}

// SplitRevision splits "org/name@revision" into name and revision. The revision is empty if there is none.
func SplitRevision(name string) (repo, revision string) {
	repo, revision, _ = strings.Cut(name, "@")
	return repo, revision
}

// withRevision returns a repository's name and its revision, which is given with the name or separately.
func withRevision(name, beside string) (repo, revision string, err error) {
	repo, revision = SplitRevision(name)
	switch {
	case repo != name && revision == "":
		return "", "", errors.New("it names no revision behind the @")
	case revision != "" && beside != "" && revision != beside:
		return "", "", fmt.Errorf("it names the revision %s, and %s is asked for", revision, beside)
	case revision == "":
		revision = beside
	}
	return repo, revision, checkRepo(repo)
}

func adviceToDownload(opts Options, env settings) string {
	switch {
	case opts.Download:
		return "unset HF_HUB_OFFLINE, "
	case env.offline:
		return "unset HF_HUB_OFFLINE and pass --download, "
	}
	return "pass --download, "
}

// checkFolder returns an error if the path called name is not the folder of a SafeTensors model.
func checkFolder(name string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		advice := weights.AdviceFile(name)
		switch {
		case advice != "":
			return fmt.Errorf("find model: %s", advice)
		case strings.HasSuffix(name, ".safetensors"):
			return fmt.Errorf(
				"find model: %s is a file: give its folder, which holds config.json and the tokenizer too", name)
		}
		return fmt.Errorf("find model: %s is a file, expected a model folder or org/name", name)
	}
	if !info.IsDir() {
		return fmt.Errorf("find model: %s is %s, expected a model folder or org/name", name, regular.Kind(info))
	}
	// With a config.json it is a model's folder; the caller may need its tokenizer only.
	if _, err := os.Stat(filepath.Join(name, configFile)); errors.Is(err, fs.ErrNotExist) {
		if advice := weights.AdviceDir(name); advice != "" {
			return fmt.Errorf("find model: the folder %s has no %s; %s", name, configFile, advice)
		}
	}
	return nil
}

// looksLikePath reports whether nobody would mean name as a hub name.
func looksLikePath(name string) bool {
	return filepath.IsAbs(name) || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "~") ||
		strings.Contains(name, `\`) || strings.Count(repoOf(name), "/") > 1 || strings.HasSuffix(name, "/")
}

// repoOf returns the name without its revision. A revision may contain slashes.
func repoOf(name string) string {
	repo, _ := SplitRevision(name)
	return repo
}

var repoPart = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?$`)

// checkRepo applies the hub's rules for names.
func checkRepo(name string) error {
	if len(name) > 96 {
		return fmt.Errorf("it has %d characters, at most 96 are allowed", len(name))
	}
	for part := range strings.SplitSeq(name, "/") {
		if !repoPart.MatchString(part) || strings.Contains(part, "--") || strings.Contains(part, "..") {
			return errors.New("the form is org/name with letters, digits, and '-', '_', '.' inside")
		}
	}
	return nil
}

type repo struct {
	kind           repoKind
	name, revision string
	dir            string // models--org--name in the cache
}

// repoKind is a kind of hub repository with its names in URLs and in the cache.
type repoKind struct {
	what   string // used in messages
	api    string // "models" in /api/models/org/name, and in models--org--name
	prefix string // prefix of the repository's URL
}

var (
	modelRepo   = repoKind{"model", "models", ""}
	datasetRepo = repoKind{"data set", "datasets", "datasets"}
)

func newRepo(kind repoKind, name, revision string, env settings) (repo, error) {
	r := repo{kind: kind, name: name, revision: revision, dir: filepath.Join(env.cache, kind.api+"--"+
		strings.ReplaceAll(name, "/", "--"))}
	if r.revision == "" {
		r.revision = "main"
	}
	if !filepath.IsLocal(r.revision) || strings.Contains(r.revision, "..") ||
		strings.ContainsAny(r.revision, "\\?#% :") {
		return repo{}, fmt.Errorf("%q is %w: the name of a branch or tag, or a commit", r.revision, ErrBadRevision)
	}
	return r, nil
}

// plainName matches what may become one path element: a commit, an etag.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// cached returns the revision's snapshot if it contains a complete model.
func (r repo) cached() (string, error) {
	dir, err := r.cachedSnapshot()
	if err != nil {
		return "", err
	}
	if missing := missingFiles(dir); len(missing) > 0 {
		err := fmt.Errorf("%s lacks %s", dir, strings.Join(missing, ", "))
		if advice := weights.AdviceDir(dir); advice != "" && slices.Contains(missing, noWeights) {
			err = fmt.Errorf("%w; %s", err, advice)
		}
		return "", err
	}
	return dir, nil
}

// cachedSnapshot returns the cache's folder for the revision, complete or not.
func (r repo) cachedSnapshot() (string, error) {
	if _, err := os.Stat(r.dir); err != nil {
		return "", fmt.Errorf("no %s: %w", r.dir, fs.ErrNotExist)
	}
	commit := r.revision
	ref := filepath.Join(r.dir, "refs", filepath.FromSlash(r.revision))
	if raw, err := regular.ReadFile(ref); err == nil {
		commit = strings.TrimSpace(string(raw))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the commit of %q cannot be read: %w", r.revision, err)
	} else if !isCommit(commit) {
		return "", fmt.Errorf("no %s, which would say the commit of %q", ref, r.revision)
	}
	if !plainName.MatchString(commit) {
		return "", fmt.Errorf("%s holds %q, which is not a commit", ref, commit)
	}
	return r.snapshot(commit), nil
}

func (r repo) snapshot(commit string) string { return filepath.Join(r.dir, "snapshots", commit) }

func isCommit(s string) bool { return regexp.MustCompile(`^[0-9a-f]{40}$`).MatchString(s) }

const (
	configFile = "config.json"
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"
	noWeights  = singleFile + " (or " + indexFile + ")"
)

// tokenizerSets lists sets of files, each of which makes a complete tokenizer.
var tokenizerSets = [][]string{{"tokenizer.json"}, {"vocab.json", "merges.txt"}, {"tokenizer.model"}}

// missingFiles lists what a snapshot lacks to be a complete model.
func missingFiles(dir string) (missing []string) {
	has := func(name string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err == nil && info.Mode().IsRegular()
	}
	if !has(configFile) {
		missing = append(missing, configFile)
	}
	switch {
	case has(singleFile):
	case has(indexFile):
		raw, err := regular.ReadFile(filepath.Join(dir, indexFile))
		if err != nil {
			return append(missing, indexFile)
		}
		shards, err := shardNames(raw)
		if err != nil {
			return append(missing, fmt.Sprintf("a readable %s (%v)", indexFile, err))
		}
		for _, shard := range shards {
			if !has(shard) {
				missing = append(missing, shard)
			}
		}
	default:
		missing = append(missing, noWeights)
	}
	if !hasTokenizer(has) {
		missing = append(missing, "tokenizer.json")
	}
	return missing
}

func hasTokenizer(has func(name string) bool) bool {
	return slices.ContainsFunc(tokenizerSets, func(set []string) bool {
		return !slices.ContainsFunc(set, func(name string) bool { return !has(name) })
	})
}

// maxShards is the most files that an index may name: models with a trillion parameters have fewer than 400.
const maxShards = 4096

// shardNames lists the files of an index, sorted.
func shardNames(raw []byte) ([]string, error) {
	var index struct {
		Map map[string]string `json:"weight_map"`
	}
	if err := jsonerr.Unmarshal(raw, &index); err != nil {
		return nil, fmt.Errorf("%s: %w", indexFile, err)
	}
	seen := map[string]bool{}
	var names []string
	for _, shard := range index.Map {
		if !seen[shard] {
			seen[shard] = true
			names = append(names, shard)
		}
	}
	if len(names) > maxShards {
		return nil, fmt.Errorf("%s names %d shards, more than %d", indexFile, len(names), maxShards)
	}
	slices.Sort(names)
	for _, shard := range names {
		if !plainName.MatchString(shard) || !strings.HasSuffix(shard, ".safetensors") {
			return nil, fmt.Errorf("%s names %q, which is not the plain name of a .safetensors file", indexFile, shard)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s names no shards", indexFile)
	}
	return names, nil
}
