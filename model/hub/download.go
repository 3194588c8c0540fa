package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/model/weights"
)

// smallFiles are fetched, besides the weights, if the repository has them.
var smallFiles = []string{
	configFile, "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
	"added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json",
	"prompt_format.json", "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json",
}

// download fetches the revision's model files into the cache. It continues an interrupted download. It writes the ref
// last, so that a ref never names an incomplete model.
func (r repo) download(ctx context.Context, c *client) (string, error) {
	commit, files, err := r.list(ctx, c)
	if err != nil {
		return "", err
	}
	has := func(name string) bool { return slices.Contains(files, name) }
	tensors := singleFile
	if !has(singleFile) {
		tensors = indexFile
	}
	if !has(configFile) || !has(tensors) || !hasTokenizer(has) {
		err := fmt.Errorf("the repository is not a model with %s, %s and a tokenizer; it has %s", configFile, noWeights,
			strings.Join(files, ", "))
		if advice := weights.Advice(files); advice != "" && !has(tensors) {
			err = fmt.Errorf("%w; %s", err, advice)
		}
		return "", err
	}
	for _, name := range append(slices.Clone(smallFiles), tensors) {
		if !has(name) {
			continue
		}
		if err := r.file(ctx, c, commit, name); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
	}
	dir := r.snapshot(commit)
	if tensors == indexFile {
		raw, err := regular.ReadFile(filepath.Join(dir, indexFile))
		if err != nil {
			return "", err
		}
		shards, err := shardNames(raw)
		if err != nil {
			return "", err
		}
		for _, name := range shards {
			if !has(name) {
				return "", fmt.Errorf("%s names %s, which the repository does not have", indexFile, name)
			}
		}
		for _, name := range shards {
			if err := r.file(ctx, c, commit, name); err != nil {
				return "", fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if missing := missingFiles(dir); len(missing) > 0 {
		return "", fmt.Errorf("the repository lacks %s", strings.Join(missing, ", "))
	}
	if r.revision == commit {
		return dir, nil
	}
	return dir, writeRef(filepath.Join(r.dir, "refs", filepath.FromSlash(r.revision)), commit)
}

// list requests the revision's commit and files from the hub.
func (r repo) list(ctx context.Context, c *client) (commit string, files []string, err error) {
	raw, err := c.read(ctx, c.url("api", r.kind.api, r.name, "revision", url.PathEscape(r.revision)))
	if err != nil {
		return "", nil, err
	}
	var answer struct {
		Commit string `json:"sha"`
		Files  []struct {
			Name string `json:"rfilename"`
		} `json:"siblings"`
	}
	if err := jsonerr.Unmarshal(raw, &answer); err != nil {
		return "", nil, fmt.Errorf("read the hub's file list: %w", err)
	}
	if !plainName.MatchString(answer.Commit) {
		return "", nil, fmt.Errorf("the hub's file list has the commit %q", answer.Commit)
	}
	for _, f := range answer.Files {
		if !fs.ValidPath(f.Name) || strings.ContainsAny(f.Name, "\\\x00") {
			return "", nil, fmt.Errorf("the hub's file list has the name %q, which leads out of its folder", f.Name)
		}
		files = append(files, f.Name)
	}
	return answer.Commit, files, nil
}

// file adds one file to the snapshot: a blob with its bytes, named by the hub's etag, and a link to the blob.
func (r repo) file(ctx context.Context, c *client, commit, name string) error {
	link := filepath.Join(r.snapshot(commit), name)
	if _, err := os.Stat(link); err == nil {
		return nil
	}
	elements := []string{r.kind.prefix, r.name, "resolve", commit}
	for part := range strings.SplitSeq(name, "/") {
		elements = append(elements, url.PathEscape(part))
	}
	address := c.url(elements...)
	meta, err := c.head(ctx, address)
	if err != nil {
		return err
	}
	blobs := filepath.Join(r.dir, "blobs")
	for _, dir := range []string{blobs, filepath.Dir(link)} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	unlock, err := lock(ctx, filepath.Join(filepath.Dir(r.dir), ".locks", filepath.Base(r.dir), meta.etag+".lock"))
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	defer unlock()
	blob := filepath.Join(blobs, meta.etag)
	if info, err := os.Stat(blob); err != nil || info.Size() != meta.size {
		if err := c.fetch(ctx, address, name, meta, blob); err != nil {
			return err
		}
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // a dangling link of an earlier try is replaced, anything else is an error
	}
	target, err := filepath.Rel(filepath.Dir(link), blob)
	if err != nil {
		return err
	}
	if os.Symlink(target, link) == nil {
		if _, err := os.Stat(link); err == nil {
			return nil
		}
		os.Remove(link) //nolint:errcheck // a link that is there and can't be followed fails below
	}
	return os.Link(blob, link) // for systems that do not create or follow symbolic links
}

// writeRef writes the commit to a temporary file and renames it.
func writeRef(path, commit string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".ref-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(commit)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = atomicfile.Install(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name()) //nolint:errcheck // the first error is what matters
	}
	return err
}
