package hub

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A hub that can't be found is told with what to look at.
func TestHubOutOfReach(t *testing.T) {
	unknown := roundTrip(func(*http.Request) (*http.Response, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "hub.invalid", IsNotFound: true}
	})
	_, err := Resolve(t.Context(), "org/name", Options{Download: true, CacheDir: t.TempDir(),
		Endpoint: "http://hub.invalid", Transport: unknown, pause: time.Millisecond})
	if err == nil || !strings.Contains(err.Error(),
		"no such host: is the network there? HTTPS_PROXY names a proxy, HF_ENDPOINT a mirror") {
		t.Error(err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
