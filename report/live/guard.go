package live

import (
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tierlora/tierlora/internal/chatpage"
	"github.com/tierlora/tierlora/report"
)

var (
	//go:embed index.html
	index string
	//go:embed live.css
	liveStyle string
	//go:embed live.js
	liveScript string
	//go:embed panels.js
	panelsScript string
	//go:embed folders.js
	foldersScript string
	//go:embed form.js
	formScript string
)

// quietLog drops net/http's messages about broken connections.
var quietLog = log.New(io.Discard, "", 0)

// policy lets a page load only resources of this server.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

type asset struct{ kind, text string }

var assets = map[string]asset{
	"/":           {"text/html; charset=utf-8", index},
	"/report.css": {"text/css; charset=utf-8", report.PageStyle},
	"/live.css":   {"text/css; charset=utf-8", liveStyle},
	"/report.js":  {"text/javascript; charset=utf-8", report.PageScript},
	"/live.js":    {"text/javascript; charset=utf-8", liveScript},
	"/panels.js":  {"text/javascript; charset=utf-8", panelsScript},
	"/chat.js":    {"text/javascript; charset=utf-8", chatpage.Script},
	"/chat.css":   {"text/css; charset=utf-8", chatpage.Style},
	"/folders.js": {"text/javascript; charset=utf-8", foldersScript},
	"/form.js":    {"text/javascript; charset=utf-8", formScript},
}

// failure is an error response with its status.
type failure struct {
	code int
	text string
}

func (f failure) Error() string { return f.text }

func refuse(code int, format string, args ...any) error {
	return failure{code, fmt.Sprintf(format, args...)}
}

// Handler returns the handler of all requests. It compares the path with the known ones; no part of a path names a
// file.
func (s *Server) Handler() http.Handler {
	reads := map[string]func(http.ResponseWriter, *http.Request) (any, error){
		"/api/events": s.events, "/api/points": s.points, "/api/form": s.form, "/api/config": s.config, "/api/size": s.size,
	}
	streams := map[string]func(http.ResponseWriter, *http.Request, request) (any, error){"/api/chat": s.chat}
	writes := map[string]func(*http.Request, request) (any, error){
		"/api/check": s.check, "/api/edit": s.edit, "/api/plan": s.plan, "/api/start": s.start, "/api/stop": s.stop, "/api/resume": s.resume, "/api/remove": s.remove, "/api/move": s.move,
		"/api/clear": s.clear, "/api/preview": s.preview, "/api/chat/open": s.chatOpen, "/api/chat/close": s.chatClose, "/api/about": s.about, "/api/delete": s.delete,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for name, value := range map[string]string{"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-store", "X-Frame-Options": "DENY"} {
			h.Set(name, value)
		}
		most := planTime
		if r.URL.Path == "/api/chat/open" {
			most = chatStart
		}
		// not known to a recorder of a test.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(most + 10*time.Second))
		answer, err := s.answer(w, r, reads, writes, streams)
		if err != nil {
			code := http.StatusInternalServerError
			if f := (failure{}); errors.As(err, &f) {
				code = f.code
			}
			answer = struct {
				Error string `json:"error"`
			}{err.Error()}
			h.Set("Content-Type", "application/json")
			w.WriteHeader(code)
		}
		if answer != nil {
			h.Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answer) // who asked has gone
		}
	})
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, reads map[string]func(http.ResponseWriter, *http.Request) (any, error),
	writes map[string]func(*http.Request, request) (any, error), streams map[string]func(http.ResponseWriter, *http.Request, request) (any, error)) (any, error) {
	if !s.knows(r.Host) {
		return nil, refuse(http.StatusForbidden, "the page was asked for as %q: open it by the address that trainer ui printed", short(r.Host))
	}
	if a, ok := assets[r.URL.Path]; ok {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			return nil, refuse(http.StatusMethodNotAllowed, "%s is read with GET", r.URL.Path)
		}
		w.Header().Set("Content-Type", a.kind)
		_, _ = io.WriteString(w, a.text) // who asked has gone
		return nil, nil
	}
	read, write, stream := reads[r.URL.Path], writes[r.URL.Path], streams[r.URL.Path]
	if read == nil && write == nil && stream == nil && r.URL.Path != uploadPath {
		return nil, refuse(http.StatusNotFound, "there is nothing at %q", short(r.URL.Path))
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return nil, refuse(http.StatusForbidden, "a page of another site asked for this")
	}
	if o := r.Header.Get("Origin"); o != "" && !sameOrigin(o, r) {
		return nil, refuse(http.StatusForbidden, "a page of %s asked for this", short(o))
	}
	if read != nil {
		if r.Method != http.MethodGet {
			return nil, refuse(http.StatusMethodNotAllowed, "%s is read with GET", r.URL.Path)
		}
		if s.o.Guarded && !s.trusts(r) {
			return nil, noToken
		}
		return read(w, r)
	}
	if r.Method != http.MethodPost {
		return nil, refuse(http.StatusMethodNotAllowed, "%s is asked for with POST", r.URL.Path)
	}
	if !s.trusts(r) {
		return nil, noToken
	}
	if r.URL.Path == uploadPath {
		return s.upload(w, r)
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, refuse(http.StatusUnsupportedMediaType, "the body must be application/json")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBody))
	if err != nil {
		if errors.As(err, new(*http.MaxBytesError)) {
			return nil, refuse(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", mostBody)
		}
		return nil, refuse(http.StatusBadRequest, "the body did not arrive: %v", err)
	}
	// reading only finds out from here on that the client is gone.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	var q request
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, refuse(http.StatusBadRequest, "the body is no JSON object of what %s takes: %v", r.URL.Path, err)
	}
	if stream != nil {
		return stream(w, r, q)
	}
	return write(r, q)
}

// uploadPath is the path that takes a file as the request's body.
const uploadPath = "/api/upload"

// request is the body of a request that changes something.
type request struct {
	ID     string `json:"id"`
	Config string `json:"config"`
	Key    string `json:"key"`
	Value  string `json:"value"`

	Chat asking `json:"chat"`

	Title string `json:"title"`
	Group string `json:"group"`
	Note  string `json:"note"`
}

var noToken = refuse(http.StatusUnauthorized, "this needs the token: open the address that trainer ui printed, with all that stands behind #")

// trusts compares the token in constant time.
func (s *Server) trusts(r *http.Request) bool {
	given, want := sha256.Sum256([]byte(r.Header.Get("X-Trainer-Token"))), sha256.Sum256([]byte(s.o.Token))
	return s.o.Token != "" && subtle.ConstantTimeCompare(given[:], want[:]) == 1
}

// knows reports whether a request names this server in a way that no other site's name can be made to lead to: by an
// address, as localhost, or by the name that the server listens on.
func (s *Server) knows(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	return host != "" && (host == "localhost" || host == strings.ToLower(s.o.Host) || net.ParseIP(host) != nil)
}

func sameOrigin(origin string, r *http.Request) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host == r.Host && (u.Scheme == "http" || u.Scheme == "https")
}

// short returns the beginning of an untrusted text.
func short(text string) string {
	if r := []rune(text); len(r) > 100 {
		return string(r[:100]) + "…"
	}
	return text
}
