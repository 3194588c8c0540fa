package track

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/tierlora/tierlora/internal/safetext"
)

const (
	requestTime  = 5 * time.Second // time for a request and its answer
	maxReply     = 1 << 20         // bytes of an answer that are read
	jsonType     = "application/json"
	userAgent    = "tierlora"
	maxErrorText = 4096
	maxQuoted    = 200 // characters of an answer in a message
)

// newClient returns a client that follows no redirects, which could carry credentials to another host. roots nil = the
// system's certificates.
func newClient(roots *x509.CertPool) *http.Client {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: 1}
	return &http.Client{Transport: transport, Timeout: requestTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// statusError is an answer with an HTTP status other than success.
type statusError struct {
	host, status string
	code         int
	body         []byte
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("%s answered %s", e.host, safetext.Line(e.status, maxQuoted))
	switch {
	case e.code == http.StatusUnauthorized || e.code == http.StatusForbidden:
		text += ": it refuses the credentials; see docs/TRACKERS.md for the variables that hold them"
	case e.code >= 300 && e.code < 400:
		text += ": redirects are not followed; configure the address that it leads to"
	case len(e.body) > 0 && e.body[0] != '<': // an HTML page says less than the status
		text += ": " + safetext.Line(string(e.body), maxQuoted)
	}
	return text
}

// call sends a request with a JSON body (nil = none) and decodes the JSON answer into reply (nil = ignored). Its errors
// contain only the host of the address.
func call(ctx context.Context, c *http.Client, method string, u *url.URL, header http.Header, body, reply any) error {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return &Permanent{err}
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(content))
	if err != nil {
		return &Permanent{fmt.Errorf("%s: the request cannot be made", u.Host)}
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("User-Agent", userAgent)
	if body != nil {
		req.Header.Set("Content-Type", jsonType)
	}
	resp, err := c.Do(req)
	if err != nil {
		return sayTransport(u.Host, err)
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		failure := &statusError{u.Host, resp.Status, resp.StatusCode, data[:min(len(data), maxErrorText)]}
		if resp.StatusCode == http.StatusRequestTimeout || resp.StatusCode == http.StatusTooManyRequests ||
			resp.StatusCode >= 500 {
			return failure
		}
		return &Permanent{failure}
	}
	if err == nil && reply != nil {
		err = json.Unmarshal(data, reply)
	}
	if err != nil {
		return fmt.Errorf("%s: read the answer: %w", u.Host, quoted(err))
	}
	return nil
}

func sayTransport(host string, err error) error {
	var outer *url.Error
	timeout := errors.As(err, &outer) && outer.Timeout()
	if outer != nil {
		err = outer.Err // without the address
	}
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &cert):
		return &Permanent{fmt.Errorf("%s: its certificate is not trusted: %w", host, quoted(cert.Err))}
	case timeout:
		return fmt.Errorf("%s: no answer within %v", host, requestTime)
	}
	return fmt.Errorf("%s: %w", host, quoted(err))
}

// quotedError is an error whose text may come from a server, or repeat what was sent to it.
type quotedError struct{ error }

func quoted(err error) error { return quotedError{err} }

func (q quotedError) Error() string { return safetext.Line(q.error.Error(), 2*maxQuoted) }
func (q quotedError) Unwrap() error { return q.error }
