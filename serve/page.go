package serve

import (
	_ "embed" // the files of the page
	"io"
	"net/http"

	"github.com/tierlora/tierlora/internal/chatpage"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.js
	pageScript string
)

// pagePolicy is a Content-Security-Policy that lets the chat page load only what this server serves.
const pagePolicy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'"

// pages maps the paths of the chat page to type and content. They are not secret and need no API key: the page asks the
// user for the key and sends it with its requests.
var pages = map[string][2]string{
	"/":            {"text/html; charset=utf-8", pageHTML},
	"/page.js":     {"text/javascript; charset=utf-8", pageScript},
	"/chat.js":     {"text/javascript; charset=utf-8", chatpage.Script},
	"/chat.css":    {"text/css; charset=utf-8", chatpage.Style},
	"/colours.css": {"text/css; charset=utf-8", chatpage.Colours},
}

// page serves a file of the chat page.
func page(w http.ResponseWriter, r *http.Request, file [2]string) *Error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", http.MethodGet)
		return refused(http.StatusMethodNotAllowed, "method_not_allowed", "%s takes GET, not %s", r.URL.Path,
			clip(r.Method))
	}
	h := w.Header()
	for name, value := range map[string]string{"Content-Type": file[0], "Content-Security-Policy": pagePolicy,
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
		"X-Frame-Options": "DENY", "Cache-Control": "no-store"} {
		h.Set(name, value)
	}
	_, _ = io.WriteString(w, file[1]) // the client may have disconnected
	return nil
}
