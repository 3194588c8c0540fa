package reward

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/tierlora/tierlora/internal/words"
)

// Bounds of requests to an endpoint.
const (
	mostReply    = 1 << 20                // bytes of a reply, beside 64 for each answer
	firstBackoff = 200 * time.Millisecond // before the first retry; it doubles
	mostBackoff  = 5 * time.Second
)

// endpoint is a judge that asks an HTTP server.
type endpoint struct {
	Config
	zeros  *int
	client *http.Client
}

// endpointProblem returns what is wrong with the address of an endpoint; "" = nothing.
func endpointProblem(c Config) string {
	u, err := url.Parse(c.URL)
	switch {
	case c.URL == "":
		return "is missing: write the address that judges answers, such as http://127.0.0.1:8000/reward"
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return fmt.Sprintf("%q is no http or https address", c.URL)
	case u.User != nil:
		return "has a user's name or password, which logs and copies of the configuration would show: remove it"
	}
	if ip := net.ParseIP(u.Hostname()); c.AllowRemote || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
		return ""
	}
	return fmt.Sprintf("%s is another machine, and prompts, answers and columns would be sent to it: set "+
		"allow_remote: true to send them", u.Host)
}

func newEndpoint(c Config, zeros *int) *endpoint {
	c.Batch, c.Workers = max(c.Batch, 1), max(c.Workers, 1)
	dial := &net.Dialer{Timeout: duration(c.Timeout)}
	if !c.AllowRemote {
		dial.Control = func(_, address string, _ syscall.RawConn) error {
			host, _, err := net.SplitHostPort(address)
			if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
				return fmt.Errorf("%s is no loopback address, and allow_remote is false", host)
			}
			return nil
		}
	}
	return &endpoint{Config: c, zeros: zeros, client: &http.Client{
		Timeout: duration(c.Timeout),
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: dial.DialContext,
			MaxIdleConnsPerHost: c.Workers, MaxConnsPerHost: c.Workers},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("it redirects to another address: write that address")
		},
	}}
}

func (e *endpoint) close() error {
	e.client.CloseIdleConnections()
	return nil
}

// judge sends the answers in batches, Workers of them at a time.
func (e *endpoint) judge(ctx context.Context, answers []Answer) ([]float64, error) {
	numbers := make([]float64, len(answers))
	problems, err := e.inParallel(ctx, (len(answers)+e.Batch-1)/e.Batch, func(_, b int) error {
		from, to := b*e.Batch, min((b+1)*e.Batch, len(answers))
		return e.ask(ctx, answers[from:to], numbers[from:to])
	})
	if err != nil {
		return nil, err
	}
	for b, err := range problems {
		if err == nil {
			continue
		}
		if e.OnError != "zero" {
			return nil, fmt.Errorf("%s: %w; on_error: zero would count its answers and go on", e.URL, err)
		}
		own := numbers[b*e.Batch : min((b+1)*e.Batch, len(answers))]
		clear(own)
		*e.zeros += len(own)
	}
	return numbers, nil
}

// passing is an error that may be gone when the request is repeated.
type passing struct{ error }

// ask sends a batch and repeats the request after an error that may pass.
func (e *endpoint) ask(ctx context.Context, answers []Answer, numbers []float64) error {
	body, err := json.Marshal(map[string]any{"answers": answers})
	if err != nil {
		return err
	}
	wait := firstBackoff
	for try := 0; ; try++ {
		err := e.once(ctx, body, numbers)
		var p passing
		if err == nil || !errors.As(err, &p) {
			return err
		}
		if try == e.Retries {
			return fmt.Errorf("%w (%d requests)", p.error, try+1)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		wait = min(2*wait, mostBackoff)
	}
}

// once sends a batch and reads its numbers.
func (e *endpoint) once(ctx context.Context, body []byte, numbers []float64) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	reply, err := e.client.Do(request)
	if err != nil {
		var of *url.Error
		if errors.As(err, &of) {
			err = of.Err
			if of.Timeout() {
				err = fmt.Errorf("no reply came within %v s", e.Timeout)
			}
		}
		return passing{err}
	}
	defer reply.Body.Close() //nolint:errcheck // it was read
	most := int64(mostReply + 64*len(numbers))
	text, err := io.ReadAll(io.LimitReader(reply.Body, most+1))
	switch code := reply.StatusCode; {
	case code == http.StatusTooManyRequests || code >= 500:
		return passing{fmt.Errorf("it replied %s: %q", reply.Status, words.Clip(string(text), 200))}
	case code != http.StatusOK:
		return fmt.Errorf("it replied %s: %q", reply.Status, words.Clip(string(text), 200))
	case err != nil:
		return passing{fmt.Errorf("read its reply: %w", err)}
	case int64(len(text)) > most:
		return fmt.Errorf("its reply has more than %d bytes", most)
	}
	return parseReply(text, numbers)
}

// parseReply reads a reply, {"rewards": [number or null, ...]}, with a number for each answer.
func parseReply(text []byte, numbers []float64) error {
	var reply struct {
		Rewards []*float64 `json:"rewards"`
	}
	if err := json.Unmarshal(text, &reply); err != nil {
		return fmt.Errorf("it replied %q, want {\"rewards\": [...]} of numbers or null", words.Clip(string(text), 200))
	}
	if len(reply.Rewards) != len(numbers) {
		return fmt.Errorf("it replied %d rewards to %d answers", len(reply.Rewards), len(numbers))
	}
	for i, x := range reply.Rewards {
		if numbers[i] = math.NaN(); x != nil {
			numbers[i] = *x
		}
	}
	return nil
}
