package hub

import (
	"context"
	"crypto/sha1" //nolint:gosec // git's blob ids are SHA-1
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/rescue"
)

// fetch downloads a file to blob. It writes to blob.incomplete, where a later call resumes. Only a complete file with
// the right hash gets the blob's name.
func (c *client) fetch(ctx context.Context, u *url.URL, name string, m metadata, blob string) error {
	partial := blob + ".incomplete"
	if err := c.retry(ctx, func() error { return c.continueFile(ctx, u, name, m, partial) }); err != nil {
		return atomicfile.Room(err, blob, m.size)
	}
	if err := atomicfile.Install(partial, blob); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(blob))
}

func (c *client) continueFile(ctx context.Context, u *url.URL, name string, m metadata, path string) (err error) {
	f, err := atomicfile.Open(path, 0o666)
	if err != nil {
		return permanentError{err}
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p := &part{file: f, meta: m, sum: newSum(m), report: func(done int64) {
		if c.progress != nil {
			c.progress(name, done, m.size)
		}
	}}
	if p.have, err = io.Copy(p.sum, f); err != nil {
		return permanentError{err}
	}
	if p.have > m.size {
		if err := p.restart(); err != nil {
			return err
		}
	}
	p.report(p.have)
	if free, ok := atomicfile.Free(filepath.Dir(path)); ok && free < m.size-p.have {
		return permanentError{&atomicfile.FullError{Path: strings.TrimSuffix(path, ".incomplete"),
			Needed: m.size - p.have, Free: free}}
	}
	if p.have < m.size {
		if err := c.receive(ctx, u, p); err != nil {
			return err
		}
	}
	if got := hex.EncodeToString(p.sum.Sum(nil)); got != m.etag {
		// These bytes are wrong, so a continuation would be too.
		return permanentError{errors.Join(fmt.Errorf("the received file has the hash %s, the hub says %s: it was "+
			"damaged on the way or the server is wrong; try again", got, m.etag), p.restart())}
	}
	if err := f.Sync(); err != nil {
		return permanentError{err}
	}
	return nil
}

// receive requests the bytes from p.have on and appends them.
func (c *client) receive(ctx context.Context, u *url.URL, p *part) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.watchdog = time.AfterFunc(stallTimeout, rescue.Wrap(func() {
		cancel(fmt.Errorf("no byte arrived for %s", stallTimeout))
	}))
	defer p.watchdog.Stop()
	header := http.Header{}
	if p.have > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", p.have))
	}
	resp, err := c.send(ctx, http.MethodGet, u, header, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusOK: // the whole file, even if a range was requested
		if err := p.restart(); err != nil {
			return err
		}
	case resp.StatusCode == http.StatusPartialContent && rangeStart(resp) == p.have:
	case resp.StatusCode == http.StatusPartialContent, resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		err := fmt.Errorf("%s: the server does not continue at byte %d", place(u), p.have)
		return errors.Join(err, p.restart())
	default:
		return c.statusError(u, resp)
	}
	_, err = io.Copy(p, io.LimitReader(resp.Body, p.meta.size-p.have+1))
	switch {
	case p.have > p.meta.size:
		return permanentError{errors.Join(fmt.Errorf("%s: the server sends more than the %d bytes that it announced",
			place(u), p.meta.size), p.restart())}
	case err != nil && context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case err == nil && p.have < p.meta.size:
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("%s: the connection ended after %d of %d bytes: %w", place(u), p.have, p.meta.size, err)
	}
	return nil
}

// part is a partly downloaded file with the hash of its bytes so far.
type part struct {
	file     *os.File
	meta     metadata
	have     int64
	sum      hash.Hash
	report   func(done int64)
	watchdog *time.Timer
}

func (p *part) Write(b []byte) (int, error) {
	n, err := p.file.Write(b)
	p.sum.Write(b[:n]) //nolint:errcheck // a hash never fails
	p.have += int64(n)
	p.watchdog.Reset(stallTimeout)
	p.report(p.have)
	if err != nil {
		err = permanentError{err}
	}
	return n, err
}

// restart discards the received bytes.
func (p *part) restart() error {
	if p.have == 0 {
		return nil
	}
	p.have, p.sum = 0, newSum(p.meta)
	_, err := p.file.Seek(0, io.SeekStart)
	if err = errors.Join(err, p.file.Truncate(0)); err != nil {
		return permanentError{err}
	}
	return nil
}

var gitOrSHA256 = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// isHash reports whether an etag is a hash of the content. Other etags cannot name a blob.
func isHash(etag string) bool { return gitOrSHA256.MatchString(etag) }

// newSum returns the hash by which m's etag was computed.
func newSum(m metadata) hash.Hash {
	if len(m.etag) != 40 {
		return sha256.New()
	}
	h := sha1.New()                       //nolint:gosec // see the import
	fmt.Fprintf(h, "blob %d\x00", m.size) // git hashes this header before the content
	return h
}

// rangeStart returns the first byte of a 206 response, or -1 if the response does not say.
func rangeStart(resp *http.Response) int64 {
	text, ok := strings.CutPrefix(resp.Header.Get("Content-Range"), "bytes ")
	first, _, found := strings.Cut(text, "-")
	if start, err := strconv.ParseInt(first, 10, 64); ok && found && err == nil {
		return start
	}
	return -1
}
