package dataset

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/dataset/source"
	"github.com/tierlora/tierlora/internal/regular"
)

// cacheVersion is part of every key. TestCacheVersion tells when a change of the rows calls for a new one.
const cacheVersion = 1

// hashReader hashes what is read through it.
type hashReader struct {
	r io.Reader
	h hash.Hash
}

func newHashReader(r io.Reader) *hashReader { return &hashReader{r, sha256.New()} }

func (h *hashReader) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	h.h.Write(p[:n])
	return n, err
}

func (h *hashReader) sum() string { return hex.EncodeToString(h.h.Sum(nil)) }

// tokenCache is the entry of one source in Config.CacheDir. Its name is a hash over all that decides the tokens, so an
// entry is never out of date; one that is damaged is written again. The nil cache keeps nothing.
type tokenCache struct {
	path string // "" = off
	key  string
	data string // SHA-256 of the file that the key was made from
	note string
}

type cached struct {
	rows   []Row
	report *Report
}

// openCache finds the entry. Every failure means only that the file is tokenised again: reading the data reports what is
// wrong with the data.
func openCache(ctx context.Context, cfg Config, path string, tok Tokenizer, open opener) (*tokenCache, *cached) {
	if cfg.CacheDir == "" {
		return nil, nil
	}
	print, ok := fingerprint(tok)
	if !ok {
		return &tokenCache{note: "off, the tokenizer does not show its files"}, nil
	}
	data, err := hashFile(ctx, path, open)
	if err != nil {
		return nil, nil
	}
	key := cacheKey(cfg, path, data, print)
	c := &tokenCache{path: filepath.Join(cfg.CacheDir, key[:32]+".tokens"), key: key, data: data}
	c.note = "tokens written to " + c.path
	entry, err := regular.ReadFile(c.path)
	if err != nil {
		return c, nil
	}
	rows, report, err := decodeEntry(entry, key, path)
	if err != nil {
		c.note = fmt.Sprintf("%s was damaged (%v) and is written again", c.path, err)
		return c, nil
	}
	report.CacheNote = "tokens read from " + c.path
	return c, &cached{rows, report}
}

func hashFile(ctx context.Context, path string, open opener) (string, error) {
	f, err := open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := newHashReader(contextReader{ctx, f})
	if _, err := io.Copy(io.Discard, h); err != nil {
		return "", err
	}
	return h.sum(), nil
}

// probe is tokenised into the fingerprint, so that most changes of the tokenizer's own code show too.
const probe = " The  tokens of 3,141.59 naïve ﬁancées' 東京 \U0001f469\u200d\U0001f4bb\n\n\tdon't I'LL </s><|im_end|>"

func fingerprint(tok Tokenizer) (string, bool) {
	f, ok := tok.(filed)
	if !ok {
		return "", false
	}
	files := f.Files()
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%q %d\n", name, len(files[name]))
		h.Write(files[name])
	}
	bos, _ := tok.BOS()
	eos, _ := tok.EOS()
	fmt.Fprintln(h, tok.AddsBOS(), bos, eos, tok.IDs(probe, false))
	return hex.EncodeToString(h.Sum(nil)), true
}

// cacheKey hashes all that decides the rows and the report. Seed, split, order and shape come later and do not.
func cacheKey(cfg Config, path, data, tokenizer string) string {
	h := sha256.New()
	put := func(what string, value any) { fmt.Fprintf(h, "%s %q\n", what, fmt.Sprint(value)) }
	put("version", cacheVersion)
	put("data", data)
	put("tokenizer", tokenizer)
	put("path", path) // the report names it
	put("format", strings.TrimPrefix(cfg.Format, FormatAuto))
	put("max_length", cfg.MaxLength)
	put("train_on_prompt", cfg.TrainOnPrompt)
	put("separator", cfg.Separator)
	put("template", "") // a key of earlier versions: their entries stay valid
	put("on_truncated", cfg.OnTruncated)
	if cfg.span != (source.Span{}) {
		put("rows", cfg.span)
	}
	if cfg.TextBy != source.TextLine {
		put("text_by", cfg.TextBy)
	}
	for _, role := range cfg.fieldRoles() {
		put("field "+role, cfg.Fields[role])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// store writes the entry and says for the report what became of it.
func (c *tokenCache) store(data string, rows []Row, report *Report) string {
	if c == nil {
		return ""
	}
	if c.path == "" {
		return c.note
	}
	if data != c.data {
		return "not written, the file changed while it was read"
	}
	if err := writeAtomic(c.path, encodeEntry(c.key, rows, report)); err != nil {
		return fmt.Sprintf("not written: %v", err)
	}
	return c.note
}

// writeAtomic leaves the whole content under the name or nothing: a crash leaves at most a file under another name.
func writeAtomic(path string, content []byte) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, filepath.Base(path)+".*.part")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if _, err = io.Copy(f, bytes.NewReader(content)); err == nil {
		err = f.Sync()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}
