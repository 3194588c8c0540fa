package dataset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
)

// CacheAuto is the value of Config.CacheDir that keeps the tokens of large files in the user's cache folder.
const CacheAuto = "auto"

// ReferenceExt ends the names of files in a cache's folder that hold the log-probabilities of a reference.
const ReferenceExt = ".reference"

const (
	autoBytes = 64e6                // the smallest data file, in bytes, whose tokens CacheAuto keeps
	autoAge   = 30 * 24 * time.Hour // CacheAuto deletes entries that were unused for this long
	partAge   = time.Hour           // a partial file that no process writes is deleted after this time
)

// tokenCache is the entry of one source in the token cache. Its name is a hash of everything that decides the tokens,
// so an entry is never out of date. A damaged entry is written again.
type tokenCache struct {
	dir  string // folder of the cache; "" = the cache is off
	auto bool   // dir is CacheAuto's folder
	path string
	key  string
	data string // SHA-256 of the data file that the key was made from
	note string

	part   *os.File // the partial file that this process writes, locked
	found  *store   // the entry; nil if it does not exist
	report *Report
	meter  *meter
}

// openCache finds the entry. If anything fails here, the file is only tokenised again: reading the data reports what is
// wrong with it.
func openCache(ctx context.Context, cfg Config, path string, tok Tokenizer, open opener, f io.Reader) *tokenCache {
	c := &tokenCache{dir: cfg.CacheDir, auto: cfg.CacheDir == CacheAuto, meter: newMeter(cfg.Progress)}
	if c.auto {
		c.dir = autoDir(sizeOf(f))
	}
	if c.dir == "" {
		return c
	}
	print, ok := fingerprint(tok)
	if !ok {
		c.off("off, the tokenizer does not show its files")
		return c
	}
	data, err := hashFile(ctx, path, c.dir, open, c.meter)
	if err != nil {
		c.dir = ""
		return c
	}
	c.data, c.key = data, cacheKey(cfg, path, data, print)
	c.path = filepath.Join(c.dir, c.key[:32]+".tokens")
	c.look(ctx, path, cfg.workers())
	return c
}

func (c *tokenCache) off(note string) { c.dir, c.note = "", note }

// autoDir returns CacheAuto's folder for a data file of the given size; "" = the tokens are not kept.
func autoDir(size int64) string {
	if size < autoBytes {
		return ""
	}
	return Config{CacheDir: CacheAuto}.Folder()
}

// look opens the entry if it exists and is undamaged.
func (c *tokenCache) look(ctx context.Context, source string, workers int) {
	c.note = "tokens written to " + c.path
	rows, err := openStore(ctx, c.path, c.key, source, workers, c.meter)
	switch {
	case err == nil:
		c.found = rows
		c.report = rows.head.Report.placed(source)
		c.report.CacheNote = fmt.Sprintf("tokens read from %s (%s)", c.path, sizeText(rows.head.size()))
		now := time.Now()
		_ = os.Chtimes(c.path, now, now) // mark as used, so that age does not delete it
		rememberWhole(c.path)
	case !errors.Is(err, fs.ErrNotExist):
		c.note = fmt.Sprintf("%s was damaged (%v) and is written again", c.path, err)
	}
}

func openRegular(path string) (*os.File, error) { return regular.Open(path) }

// claim reserves the entry for this process to write. While another process writes it, claim waits; afterwards the
// entry may exist.
func (c *tokenCache) claim(ctx context.Context, source string, size int64, workers int) error {
	if c.dir == "" {
		return nil
	}
	err := c.acquire(ctx, source, size, workers)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("read %s: %w", source, ctx.Err())
	}
	if err != nil {
		c.off("not written: " + err.Error())
	}
	return nil
}

func (c *tokenCache) acquire(ctx context.Context, source string, size int64, workers int) error {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	c.clean()
	if free, ok := diskFree(c.dir); ok && free < reserveBytes+size/2 {
		return fmt.Errorf("%s has only %s free", c.dir, sizeText(free))
	}
	waited := false
	for {
		f, err := lockPart(c.path + ".part")
		if err == nil {
			c.part = f
			break
		}
		if !errors.Is(err, errHeld) {
			return err
		}
		if !waited {
			c.meter.begin("waiting for another run that tokenises", source, 0)
		}
		waited = true
		c.meter.rows(0)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	if waited {
		if c.look(ctx, source, workers); c.found != nil {
			return nil
		}
	}
	os.Remove(c.path) // a damaged entry takes up space that is needed
	return c.part.Truncate(0)
}

// lockPart opens a file and locks it for this process; it returns errHeld while another process holds the lock.
func lockPart(path string) (*os.File, error) {
	f, err := atomicfile.Open(path, 0o644)
	if err != nil {
		return nil, err
	}
	err = lockNow(f)
	if err == nil {
		var now, then os.FileInfo
		if then, err = f.Stat(); err == nil {
			if now, err = os.Lstat(path); err != nil || !os.SameFile(now, then) {
				err = errHeld // the process that held the lock has renamed or deleted the file
			} else if err = regular.Check(path, now); err == nil {
				return f, nil
			}
		}
	}
	f.Close()
	if errors.Is(err, errHeld) || errors.Is(err, fs.ErrPermission) {
		return nil, err
	}
	// Without locks on this file system every process writes a file of its own, and the last one to finish wins.
	return os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part")
}

// publish renames the written file to the entry's name and returns a note for the report. It does not sync the file:
// checksums detect what a power failure damages.
func (c *tokenCache) publish(s *store, sums []byte) string {
	if c.part == nil {
		return c.note
	}
	if s.head.Report.SHA256 != c.data {
		return "not written, the file changed while it was read"
	}
	s.head.Key = c.key
	err := writeHead(c.part, s.head, sums)
	if err == nil {
		err = atomicfile.Install(c.part.Name(), c.path)
	}
	if err != nil {
		return fmt.Sprintf("not written: %v", err)
	}
	if s.file != nil {
		if f, err := openRegular(c.path); err == nil {
			s.unread = newUnread(f, sums, 0)
		}
	}
	rememberWhole(c.path)
	note := fmt.Sprintf("%s (%s", c.note, sizeText(s.head.size()))
	if c.auto {
		note += "; deleted when unused for 30 days"
	}
	return note + ")"
}

// giveUp leaves the entry unwritten.
func (c *tokenCache) giveUp(err error) {
	c.off("not written: " + err.Error())
	c.closePart()
}

func (c *tokenCache) close() {
	c.meter.end()
	c.closePart()
}

// closePart deletes the partial file if it was not published. Processes that have it mapped keep its contents.
func (c *tokenCache) closePart() {
	if c.part == nil {
		return
	}
	if here, err := os.Stat(c.part.Name()); err == nil {
		if mine, err := c.part.Stat(); err == nil && os.SameFile(here, mine) {
			os.Remove(c.part.Name())
		}
	}
	c.part.Close() // all that matters was written before
	c.part = nil
}

// clean deletes the files that killed runs left behind, and in CacheAuto's folder entries that were unused for a long
// time.
func (c *tokenCache) clean() {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		path, age := filepath.Join(c.dir, e.Name()), time.Since(info.ModTime())
		switch ext := filepath.Ext(e.Name()); {
		case ext == ".part" && strings.Contains(e.Name(), ".tokens.") && age > partAge:
			if f, err := lockPart(path); err == nil {
				os.Remove(f.Name())
				f.Close() //nolint:errcheck // nothing was written
			}
		case c.auto && age > autoAge && (ext == ".tokens" || ext == ".whole" || ext == ".hash" || ext == ReferenceExt):
			os.Remove(path)
		}
	}
}
