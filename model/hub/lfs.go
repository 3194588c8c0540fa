package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/rescue"
)

// lfsJSON is the media type of git LFS requests (https://github.com/git-lfs/git-lfs, docs/api/batch.md).
const lfsJSON = "application/vnd.git-lfs+json"

// lfsObject is a file in the response of the batch API.
type lfsObject struct {
	OID     string `json:"oid"`
	Size    int64  `json:"size"`
	Actions struct {
		Upload *lfsAction `json:"upload"`
		Verify *lfsAction `json:"verify"`
	} `json:"actions"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

type lfsAction struct {
	Href   string                     `json:"href"`
	Header map[string]json.RawMessage `json:"header"`
}

// storeLarge uploads the large files that the storage lacks.
func (u *upload) storeLarge(ctx context.Context, _ *Pushed) error {
	var large []*entry
	for _, e := range u.files {
		if e.large {
			large = append(large, e)
		}
	}
	for part := range slices.Chunk(large, batchFiles) {
		objects, err := u.batch(ctx, part)
		if err != nil {
			return err
		}
		for _, e := range part {
			i := slices.IndexFunc(objects, func(o lfsObject) bool { return o.OID == e.sha256 })
			if i < 0 {
				return fmt.Errorf("the large file storage says nothing of %s", e.Name)
			}
			if err := u.store(ctx, e, objects[i]); err != nil {
				return fmt.Errorf("%s: %w", e.Name, err)
			}
		}
	}
	return nil
}

func (u *upload) batch(ctx context.Context, files []*entry) ([]lfsObject, error) {
	type object struct {
		OID  string `json:"oid"`
		Size int64  `json:"size"`
	}
	question := struct {
		Operation string            `json:"operation"`
		Transfers []string          `json:"transfers"`
		Objects   []object          `json:"objects"`
		Hash      string            `json:"hash_algo"`
		Ref       map[string]string `json:"ref"`
	}{"upload", []string{"basic", "multipart"}, nil, "sha256", map[string]string{"name": "main"}}
	for _, e := range files {
		question.Objects = append(question.Objects, object{e.sha256, e.size})
	}
	body, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	to := u.url(u.name+".git", "info", "lfs", "objects", "batch")
	raw, err := u.exchange(ctx, http.MethodPost, to, http.Header{"Content-Type": {lfsJSON}, "Accept": {lfsJSON}}, body,
		true)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Objects []lfsObject `json:"objects"`
	}
	if err := jsonerr.Unmarshal(raw, &answer); err != nil {
		return nil, fmt.Errorf("%s: the answer is not of a large file storage: %w", place(to), err)
	}
	return answer.Objects, nil
}

// store uploads one file, in one piece or in the parts that the response asks for.
func (u *upload) store(ctx context.Context, e *entry, o lfsObject) error {
	if o.Error != nil {
		return fmt.Errorf("the large file storage refuses it: %d %s", o.Error.Code, plainText(o.Error.Message))
	}
	if o.Size != e.size {
		return fmt.Errorf("the large file storage says that it has %d bytes; it has %d", o.Size, e.size)
	}
	if o.Actions.Upload == nil {
		return nil // already stored
	}
	to, err := u.href(o.Actions.Upload.Href)
	if err != nil {
		return err
	}
	if raw, ok := o.Actions.Upload.Header["chunk_size"]; ok {
		err = u.storeParts(ctx, e, to, raw, o.Actions.Upload.Header)
	} else {
		_, err = u.put(ctx, e, to, 0, e.size)
	}
	if err != nil || o.Actions.Verify == nil {
		return err
	}
	if to, err = u.href(o.Actions.Verify.Href); err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"oid": e.sha256, "size": e.size})
	if err != nil {
		return err
	}
	if err := u.post(ctx, to, asJSON, body, true, nil); err != nil {
		return fmt.Errorf("the upload does not verify: %w", err)
	}
	return nil
}

// mostParts is the most parts of a file.
const mostParts = 10_000

// storeParts uploads a file in parts of the given size, each to its own address, and then completes the upload.
func (u *upload) storeParts(ctx context.Context, e *entry, done *url.URL, size json.RawMessage,
	header map[string]json.RawMessage) error {
	text := strings.Trim(string(size), `"`)
	chunk, err := strconv.ParseInt(text, 10, 64)
	if err != nil || chunk < 1 || (e.size+chunk-1)/chunk > mostParts {
		return fmt.Errorf("the large file storage asks for parts of %q bytes of a file of %d", plainText(text), e.size)
	}
	parts := int((e.size + chunk - 1) / chunk)
	var addresses []string
	for key, raw := range header {
		if n, err := strconv.Atoi(key); err == nil && n > 0 {
			var at string
			if json.Unmarshal(raw, &at) != nil || n > parts {
				return fmt.Errorf("the large file storage's address of part %d of %d can't be read", n, parts)
			}
			for len(addresses) < n {
				addresses = append(addresses, "")
			}
			addresses[n-1] = at
		}
	}
	if len(addresses) != parts || slices.Contains(addresses, "") {
		return fmt.Errorf("the large file storage gives addresses of %d parts; the file has %d", len(addresses), parts)
	}
	type part struct {
		Number int    `json:"partNumber"`
		ETag   string `json:"etag"`
	}
	finish := struct {
		OID   string `json:"oid"`
		Parts []part `json:"parts"`
	}{OID: e.sha256}
	for i, address := range addresses {
		to, err := u.href(address)
		if err != nil {
			return err
		}
		from := int64(i) * chunk
		etag, err := u.put(ctx, e, to, from, min(chunk, e.size-from))
		if err != nil {
			return err
		}
		if etag == "" {
			return fmt.Errorf("%s: the answer to part %d has no etag", place(to), i+1)
		}
		finish.Parts = append(finish.Parts, part{i + 1, etag})
	}
	body, err := json.Marshal(finish)
	if err != nil {
		return err
	}
	_, err = u.exchange(ctx, http.MethodPost, done, http.Header{"Content-Type": {lfsJSON}, "Accept": {lfsJSON}}, body,
		true)
	return err
}

// put uploads n bytes of a file, beginning at from.
func (u *upload) put(ctx context.Context, e *entry, to *url.URL, from, n int64) (etag string, err error) {
	err = u.retry(ctx, func() error {
		in, err := e.open()
		if err != nil {
			return permanentError{err}
		}
		defer in.Close()
		if seek, ok := in.(io.Seeker); ok && from > 0 {
			_, err = seek.Seek(from, io.SeekStart)
		} else {
			_, err = io.CopyN(io.Discard, in, from)
		}
		if err != nil {
			return permanentError{err}
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		w := &sending{from: io.LimitReader(in, n), watchdog: time.AfterFunc(stallTimeout, rescue.Wrap(func() {
			cancel(fmt.Errorf("no byte could be sent for %s", stallTimeout))
		})), report: func(done int64) {
			if u.progress != nil {
				u.progress(e.Name, from+done, e.size)
			}
		}}
		defer w.watchdog.Stop()
		resp, err := u.sendBody(ctx, http.MethodPut, to, http.Header{"Content-Type": {"application/octet-stream"}},
			&payload{func() (io.Reader, error) {
				if w.done > 0 {
					return nil, errors.New("the storage redirects after it has taken bytes")
				}
				return w, nil
			}, n}, nil)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode >= 300 {
			return u.statusError(to, resp)
		}
		etag = resp.Header.Get("ETag")
		return nil
	})
	return etag, err
}

// sending is the reader of a request's body.
type sending struct {
	from     io.Reader
	done     int64
	watchdog *time.Timer
	report   func(done int64)
}

func (s *sending) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	s.done += int64(n)
	s.watchdog.Reset(stallTimeout)
	s.report(s.done)
	return n, err
}

// href parses an address from the hub. If another endpoint is in use, the hub's own address is replaced by it.
func (c *client) href(text string) (*url.URL, error) {
	const home = "https://huggingface.co"
	if rest, ok := strings.CutPrefix(text, home+"/"); ok && c.endpoint.String() != home {
		text = c.endpoint.String() + "/" + rest
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != c.endpoint.Scheme {
		return nil, fmt.Errorf("the hub gives an address that is none for an upload: %q",
			plainText(strings.SplitN(text, "?", 2)[0]))
	}
	return u, nil
}
