package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// guard decides which requests are accepted.
type guard struct {
	host    string            // name on which the server listens
	key     [sha256.Size]byte // hash of the API key
	locked  bool              // an API key is required
	origins []string          // origins of web pages that may send requests; "*" = any
}

func newGuard(o Options) guard {
	return guard{host: o.Host, key: sha256.Sum256([]byte(o.APIKey)), locked: o.APIKey != "", origins: o.AllowOrigins}
}

// hosts rejects host names by which a foreign web page could reach a server on this machine (DNS rebinding): names
// other than localhost and the one on which the server listens. An address cannot be rebound, and a client with the API
// key is trusted.
func (g *guard) hosts(r *http.Request) *Error {
	name := r.Host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	name = strings.ToLower(strings.Trim(strings.TrimSuffix(name, "."), "[]"))
	if g.locked || name == "localhost" || name == strings.ToLower(g.host) {
		return nil
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return nil
	}
	return refused(http.StatusForbidden, "host_not_allowed", "the Host header names %q, which is not this server: "+
		"ask by its address or by localhost, or start it with an API key", clip(r.Host))
}

// origin returns the request's Origin if it is allowed.
func (g *guard) origin(r *http.Request) (string, *Error) {
	origin := r.Header.Get("Origin")
	if origin == "" {
		if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
			return "", refused(http.StatusForbidden, "origin_not_allowed",
				"a page of another site asks: --allow-origin names the pages that may")
		}
		return "", nil
	}
	if slices.Contains(g.origins, "*") || slices.Contains(g.origins, origin) {
		return origin, nil
	}
	if u, err := url.Parse(origin); err == nil && u.Host == r.Host && u.Scheme == "http" {
		return "", nil
	}
	return "", refused(http.StatusForbidden, "origin_not_allowed",
		"a page of %s asks: --allow-origin names the pages that may", clip(origin))
}

// keyed checks the API key.
func (g *guard) keyed(r *http.Request) *Error {
	if !g.locked {
		return nil
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return refused(http.StatusUnauthorized, "missing_api_key",
			"an API key is needed: send the header Authorization: Bearer KEY")
	}
	// hashed, so that the comparison does not depend on the length
	sum := sha256.Sum256([]byte(strings.TrimSpace(given)))
	if subtle.ConstantTimeCompare(sum[:], g.key[:]) != 1 {
		return refused(http.StatusUnauthorized, "invalid_api_key", "the API key is not the one of this server")
	}
	return nil
}
