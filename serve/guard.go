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

// guard decides which requests are looked at.
type guard struct {
	host    string            // the name that the server was told to listen on
	key     [sha256.Size]byte // of the API key
	locked  bool              // there is an API key
	origins []string          // of pages that may ask; "*" = any
}

func newGuard(o Options) guard {
	return guard{host: o.Host, key: sha256.Sum256([]byte(o.APIKey)), locked: o.APIKey != "", origins: o.AllowOrigins}
}

// hosts refuses names by which a page elsewhere could reach a server of this machine (DNS rebinding): a name that is
// neither localhost nor the one that the server listens on. An address cannot be rebound, and whoever has the API key
// is no foreign page.
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

// origin is the page that asks, where it may.
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

// keyed asks for the API key.
func (g *guard) keyed(r *http.Request) *Error {
	if !g.locked {
		return nil
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return refused(http.StatusUnauthorized, "missing_api_key",
			"an API key is needed: send the header Authorization: Bearer KEY")
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(given))) // of one length, whatever was sent
	if subtle.ConstantTimeCompare(sum[:], g.key[:]) != 1 {
		return refused(http.StatusUnauthorized, "invalid_api_key", "the API key is not the one of this server")
	}
	return nil
}
