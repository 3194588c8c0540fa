package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tierlora/tierlora/internal/words"
)

// maxShown is the most bytes of a foreign text that an error repeats.
const maxShown = 80

const (
	maxRedirects = 10
	maxAnswer    = 64 << 20         // bytes of a JSON response
	stallTimeout = 60 * time.Second // longest time without receiving a byte
	maxWait      = 2 * time.Minute  // longest time that a server may request before a retry
)

type client struct {
	what     string // kind of repository: a model or a data set
	http     http.Client
	endpoint *url.URL
	token    string
	progress func(file string, done, total int64)
	pause    time.Duration // before the first retry
}

func newClient(kind repoKind, s settings, opts Options) *client {
	c := &client{what: kind.what, endpoint: s.endpoint, token: s.token, progress: opts.Progress,
		pause: cmp.Or(opts.pause, time.Second/2)}
	c.http.Transport = opts.Transport
	if c.http.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.ResponseHeaderTimeout = stallTimeout
		c.http.Transport = t
	}
	// Redirects are followed by send, which decides who may see the token.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c
}

// url appends escaped path elements to the endpoint.
func (c *client) url(elements ...string) *url.URL {
	return c.endpoint.JoinPath(elements...)
}

// statusError is an HTTP response other than success.
type statusError struct {
	code  int
	text  string
	after time.Duration // time that the server requests before a retry
}

func (e *statusError) Error() string { return e.text }

func (c *client) statusError(u *url.URL, resp *http.Response) error {
	where, code := place(u), resp.StatusCode
	text := fmt.Sprintf("%s answers %d %s", where, code, http.StatusText(code))
	switch {
	case code == http.StatusUnauthorized && c.token == "":
		text += ": the " + c.what + " does not exist or needs a token (set HF_TOKEN, or log in with `hf auth login`)"
	case code == http.StatusUnauthorized:
		text += ": the token was refused, or the " + c.what + " does not exist"
	case code == http.StatusForbidden:
		text += ": the token gives no access; accept the " + c.what + "'s terms on its page"
	case code == http.StatusNotFound:
		text += ": no such " + c.what + ", revision or file"
	}
	if said := plainText(resp.Header.Get("X-Error-Message")); said != "" {
		text += " (" + said + ")"
	}
	return &statusError{code, text, retryAfter(resp.Header.Get("Retry-After"), time.Now())}
}

// retryAfter parses a Retry-After header: seconds, or a date. It returns 0 if the header is absent or invalid.
func retryAfter(text string, now time.Time) time.Duration {
	if n, err := strconv.Atoi(strings.TrimSpace(text)); err == nil && n > 0 {
		return time.Duration(min(n, 1<<30)) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}

// plainText makes a server's text safe for a terminal: printable, on one line, shortened.
func plainText(text string) string {
	text = strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if r := []rune(strings.TrimSpace(text)); len(r) > 200 {
		return string(r[:200]) + "..."
	}
	return strings.TrimSpace(text)
}

// webPage returns the error for an HTML page in place of an API response.
func webPage(u *url.URL, resp *http.Response, body []byte) error {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if strings.TrimSpace(kind) != "text/html" &&
		!strings.HasPrefix(strings.TrimSpace(string(body[:min(64, len(body))])), "<") {
		return nil
	}
	return &statusError{code: resp.StatusCode, text: place(u) +
		" answers with a web page: is HF_ENDPOINT right, or does a proxy or a login page answer instead of the hub?"}
}

// place returns an address without its query, which may contain a signature.
func place(u *url.URL) string {
	return u.Scheme + "://" + u.Host + "/" + strings.TrimPrefix(u.EscapedPath(), "/")
}

// payload is a request's body: its size, and a function that opens a new reader for every try.
type payload struct {
	open func() (io.Reader, error)
	size int64
}

// send makes a request without a body.
func (c *client) send(ctx context.Context, method string, u *url.URL, header http.Header,
	stop func(*http.Response) bool) (*http.Response, error) {
	return c.sendBody(ctx, method, u, header, nil, stop)
}

// sendBody makes a request and follows redirects until stop accepts a response. It sends the token only to the
// endpoint's scheme, host and port, and forwards the body only if the redirect keeps the method (307, 308).
func (c *client) sendBody(ctx context.Context, method string, u *url.URL, header http.Header, body *payload,
	stop func(*http.Response) bool) (*http.Response, error) {
	for range maxRedirects {
		var from io.Reader
		if body != nil {
			var err error
			if from, err = body.open(); err != nil {
				return nil, permanentError{err}
			}
			if body.size == 0 {
				from = http.NoBody
			}
		}
		req, err := http.NewRequestWithContext(ctx, method, u.String(), from)
		if err != nil {
			return nil, err
		}
		if body != nil {
			req.ContentLength = body.size
		}
		req.Header = header.Clone()
		if req.Header == nil {
			req.Header = http.Header{}
		}
		req.Header.Set("User-Agent", "tierlora")
		req.Header.Set("Accept-Encoding", "identity") // sizes and ranges must count the file's own bytes
		if c.token != "" && u.Scheme == c.endpoint.Scheme && u.Host == c.endpoint.Host {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		resp, err := c.http.Do(req)
		if err != nil {
			var outer *url.Error
			if errors.As(err, &outer) {
				err = outer.Err // the outer text contains the whole address
			}
			var unknown *net.DNSError
			if errors.As(err, &unknown) {
				return nil, fmt.Errorf("%s %s: %w: is the network there? HTTPS_PROXY names a proxy, HF_ENDPOINT a "+
					"mirror, and a folder copied here needs neither", method, place(u), err)
			}
			// net/http returns this text without an error value
			if strings.HasPrefix(err.Error(), "failed to parse Location header") {
				return nil, permanentError{fmt.Errorf("%s %s: redirect: %w", method, place(u), err)}
			}
			return nil, fmt.Errorf("%s %s: %w", method, place(u), err)
		}
		if resp.StatusCode < 300 || resp.StatusCode >= 400 || stop != nil && stop(resp) {
			return resp, nil
		}
		resp.Body.Close()
		next, err := resp.Location()
		if err != nil {
			return nil, permanentError{fmt.Errorf("%s %s: redirect: %w", method, place(u), err)}
		}
		if next.Scheme != "https" && next.Scheme != u.Scheme {
			return nil, permanentError{fmt.Errorf("%s %s: refused to follow a redirect from %s to %s://%s", method,
				place(u), u.Scheme, next.Scheme, next.Host)}
		}
		if body != nil && resp.StatusCode != http.StatusTemporaryRedirect &&
			resp.StatusCode != http.StatusPermanentRedirect {
			return nil,
				permanentError{
					fmt.Errorf("%s %s: answers %d, a redirect that a request with a body does not follow; is "+
						"HF_ENDPOINT right?", method, place(u), resp.StatusCode)}
		}
		u = next
	}
	return nil, permanentError{fmt.Errorf("%s: more than %d redirects", place(u), maxRedirects)}
}

// read returns the body of a small response.
func (c *client) read(ctx context.Context, u *url.URL) ([]byte, error) {
	var body []byte
	err := c.retry(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, stallTimeout)
		defer cancel()
		resp, err := c.send(ctx, http.MethodGet, u, nil, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return c.statusError(u, resp)
		}
		body, err = readAnswer(u, resp)
		return err
	})
	return body, err
}

// readAnswer returns the body of an API response.
func readAnswer(u *url.URL, resp *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("%s: the answer broke off after %d bytes: %w", place(u), len(body), err)
	}
	if len(body) > maxAnswer {
		return nil, &statusError{code: resp.StatusCode, text: fmt.Sprintf("%s: the answer is over %d bytes",
			place(u), maxAnswer)}
	}
	return body, webPage(u, resp, body)
}

// metadata describes a file on the hub.
type metadata struct {
	etag string // 64 hex digits: SHA-256; 40 digits: git's blob id
	size int64
}

// head requests etag and size. For a large file the hub responds with a redirect whose X-Linked headers carry them.
func (c *client) head(ctx context.Context, u *url.URL) (m metadata, err error) {
	err = c.retry(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, stallTimeout)
		defer cancel()
		resp, err := c.send(ctx, http.MethodHead, u, nil, func(r *http.Response) bool {
			return r.Header.Get("X-Linked-Etag") != ""
		})
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode >= 400 {
			return c.statusError(u, resp)
		}
		if resp.Header.Get("X-Linked-Etag") == "" && resp.Header.Get("ETag") == "" {
			if err := webPage(u, resp, nil); err != nil {
				return err
			}
		}
		etag, size := resp.Header.Get("X-Linked-Etag"), resp.Header.Get("X-Linked-Size")
		if etag == "" {
			etag = resp.Header.Get("ETag")
		}
		if size == "" {
			size = resp.Header.Get("Content-Length")
		}
		m.etag = strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
		if !isHash(m.etag) { // the etag names the blob, so two files with one etag would become one
			return &statusError{code: resp.StatusCode,
				text: fmt.Sprintf("%s: unusable etag %q: it is neither the SHA-256 of the file nor git's id of it, "+
					"so what arrives could not be checked; is HF_ENDPOINT a hub, or a mirror that passes the hub's "+
					"etags on?", place(u), words.Clip(etag, maxShown))}
		}
		m.size, err = strconv.ParseInt(size, 10, 64)
		if err != nil || m.size < 0 {
			return &statusError{code: resp.StatusCode, text: fmt.Sprintf("%s: unusable size %q", place(u), size)}
		}
		return nil
	})
	return m, err
}

// retry repeats try after a broken connection or a busy server, but not after a response that would be the same again.
func (c *client) retry(ctx context.Context, try func() error) error {
	const tries = 5
	pause := c.pause
	for i := 1; ; i++ {
		err := try()
		if err == nil || ctx.Err() != nil || i == tries || !passing(err) {
			return err
		}
		wait := pause
		if status := (*statusError)(nil); errors.As(err, &status) && status.after > wait {
			if wait = status.after; wait > maxWait {
				return fmt.Errorf("%w: the server asks to wait %s; try again then", err, wait.Round(time.Second))
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		pause *= 2
	}
}

// permanentError marks a non-retryable error: a full disk, a wrong hash.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

func passing(err error) bool {
	var permanent permanentError
	if errors.As(err, &permanent) {
		return false
	}
	var status *statusError
	return !errors.As(err, &status) || status.code >= 500 || status.code == http.StatusTooManyRequests
}
