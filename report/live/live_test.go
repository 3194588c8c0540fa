package live

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlora/tierlora/report/queue"
	"github.com/tierlora/tierlora/train"
)

const token = "the token of this test"

// TestMain has no test wait a second for news.
func TestMain(m *testing.M) {
	newsEvery = 100 * time.Millisecond
	os.Exit(m.Run())
}

// fixture is a server over a folder of runs. The configuration "output_dir" is right, "wrong" is not.
func fixture(t testing.TB, change func(*Options)) (*Server, string) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "runs")
	q, err := queue.Open(filepath.Join(t.TempDir(), "queue"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}
	o := Options{Roots: []string{root}, Host: "127.0.0.1", Token: token, Queue: q, Program: filepath.Join(root, "no program"),
		Check: func(config []byte) Checked {
			if string(config) == "wrong" {
				return Checked{Problems: []Problem{{Key: "seed", Line: 3, Message: "seed: must be a number"}}}
			}
			return Checked{OutputDir: filepath.Join(root, string(config))}
		},
		Edit: func(config []byte, key, value string) ([]byte, error) {
			if key == "wrong" {
				return nil, errors.New("wrong is no key")
			}
			return []byte(string(config) + key + value), nil
		}}
	if change != nil {
		change(&o)
	}
	return New(t.Context(), o), root
}

// write makes or prolongs a file of a run.
func write(t testing.TB, root, run, name, text string) {
	t.Helper()
	dir := filepath.Join(root, run)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func step(n int, loss string) string {
	return fmt.Sprintf(`{"step":%d,"loss":%s,"grad_norm":2.5,"grad_norm_clipped":1,"learning_rate":0.001,"num_input_tokens_seen":%d,"tokens/train_per_sec_per_gpu":1000}`+"\n", n, loss, 500*n)
}

func steps(from, to int) string {
	var b strings.Builder
	for n := from; n <= to; n++ {
		b.WriteString(step(n, fmt.Sprint(2+3/float64(n))))
	}
	return b.String()
}

// TestRefusals: what is asked for wrongly, from elsewhere or without the token gets an answer that says so, and changes
// nothing.
func TestRefusals(t *testing.T) {
	s, root := fixture(t, nil)
	write(t, root, "done", train.MetricsFile, steps(1, 3)+`{"step":3,"train_loss":1,"train_runtime":1}`+"\n")
	write(t, root, "bare", train.MetricsFile, steps(1, 3))
	s.hub.refresh(nil)
	done, bare := idOf(filepath.Join(root, "done")), idOf(filepath.Join(root, "bare"))
	type head = map[string]string
	post := func(more head) head {
		h := head{"Content-Type": "application/json", "X-Trainer-Token": token}
		for k, v := range more {
			h[k] = v
		}
		return h
	}
	for _, c := range []struct {
		name, method, url, host string
		head                    head
		body                    string
		code                    int
		want                    string
	}{
		{"the page", "GET", "/", "", nil, "", 200, "<title>Runs</title>"},
		{"another name for this machine", "GET", "/", "evil.example:7878", nil, "", 403, `the page was asked for as "evil.example:7878": open it by the address that trainer ui printed`},
		{"no name", "GET", "/api/events?width=5", " ", nil, "", 403, "open it by the address"},
		{"a path out of the folder", "GET", "/../../etc/passwd", "", nil, "", 404, `there is nothing at "/../../etc/passwd"`},
		{"a path in signs", "GET", "/%2e%2e/live.go", "", nil, "", 404, `there is nothing at "/../live.go"`},
		{"a run by its path", "GET", "/api/config?id=../../done", "", nil, "", 404, `there is no run "../../done" here`},
		{"a run that is not there", "GET", "/api/config?id=000000000000", "", nil, "", 404, `there is no run "000000000000" here`},
		{"a run without a configuration", "GET", "/api/config?id=" + done, "", nil, "", 404, "done has no config.yaml that can be read"},
		{"the page written to", "POST", "/", "", nil, "", 405, "/ is read with GET"},
		{"events written to", "POST", "/api/events", "", post(nil), "{}", 405, "/api/events is read with GET"},
		{"a start with GET", "GET", "/api/start", "", post(nil), "", 405, "/api/start is asked for with POST"},
		{"no token", "POST", "/api/start", "", head{"Content-Type": "application/json"}, `{"config":"x"}`, 401, "this needs the token: open the address that trainer ui printed, with all that stands behind #"},
		{"another token", "POST", "/api/stop", "", post(head{"X-Trainer-Token": token + "x"}), `{}`, 401, "this needs the token"},
		{"the token in the address", "POST", "/api/stop?token=" + strings.ReplaceAll(token, " ", "+"), "", head{"Content-Type": "application/json"}, `{}`, 401, "this needs the token"},
		{"another site, by its header", "POST", "/api/start", "", post(head{"Sec-Fetch-Site": "cross-site"}), `{"config":"x"}`, 403, "a page of another site asked for this"},
		{"another site reads", "GET", "/api/events?width=5", "", head{"Sec-Fetch-Site": "same-site"}, "", 403, "a page of another site asked for this"},
		{"another origin", "POST", "/api/start", "", post(head{"Origin": "https://evil.example"}), `{"config":"x"}`, 403, "a page of https://evil.example asked for this"},
		{"no origin of a page", "POST", "/api/start", "", post(head{"Origin": "null"}), `{"config":"x"}`, 403, "a page of null asked for this"},
		{"another port", "POST", "/api/start", "", post(head{"Origin": "http://127.0.0.1:1"}), `{"config":"x"}`, 403, "a page of http://127.0.0.1:1 asked for this"},
		{"a form of a page", "POST", "/api/start", "", post(head{"Content-Type": "text/plain"}), `{"config":"x"}`, 415, "the body must be application/json"},
		{"no JSON", "POST", "/api/start", "", post(nil), `{`, 400, "the body is no JSON object of what /api/start takes: unexpected end of JSON input"},
		{"JSON of another kind", "POST", "/api/start", "", post(nil), `{"config":5}`, 400, "the body is no JSON object of what /api/start takes: json: cannot unmarshal number"},
		{"a large body", "POST", "/api/check", "", post(nil), `{"config":"` + strings.Repeat("x", 2<<20) + `"}`, 413, "the body has more than 1048576 bytes"},
		{"a configuration that is wrong", "POST", "/api/start", "", post(nil), `{"config":"wrong"}`, 422, "seed: must be a number"},
		{"a plan of it", "POST", "/api/plan", "", post(nil), `{"config":"wrong"}`, 422, "seed: must be a number"},
		{"an edit that is wrong", "POST", "/api/edit", "", post(nil), `{"config":"","key":"wrong","value":"1"}`, 422, "wrong is no key"},
		{"a folder elsewhere", "POST", "/api/start", "", post(nil), `{"config":"../elsewhere"}`, 422, "is not inside what this page shows (" + root + "): choose a folder there"},
		{"the folder of folders", "POST", "/api/start", "", post(nil), `{"config":"."}`, 422, "is not inside what this page shows"},
		{"a folder that holds a run", "POST", "/api/start", "", post(nil), `{"config":"done"}`, 422, "holds a run already: choose another folder, or resume that run"},
		{"stop what does not run", "POST", "/api/stop", "", post(nil), `{"id":"` + done + `"}`, 409, "there is nothing to stop"},
		{"stop what is not there", "POST", "/api/stop", "", post(nil), `{"id":"../x"}`, 404, `there is no run "../x" here`},
		{"a note without the token", "POST", "/api/about", "", head{"Content-Type": "application/json"}, `{"id":"` + done + `","title":"x"}`, 401, "needs the token"},
		{"a note of a page elsewhere", "POST", "/api/about", "", post(head{"Origin": "http://evil.example"}), `{"id":"` + done + `"}`, 403, "a page of http://evil.example asked for this"},
		{"a long title", "POST", "/api/about", "", post(nil), `{"id":"` + done + `","title":"` + strings.Repeat("x", 101) + `"}`, 422, "the title has 101 characters: at most 100 are kept"},
		{"delete without the token", "POST", "/api/delete", "", head{"Content-Type": "application/json"}, `{"id":"` + done + `","value":"done"}`, 401, "needs the token"},
		{"delete by a wrong name", "POST", "/api/delete", "", post(nil), `{"id":"` + done + `","value":"bare"}`, 409, `the folder is called "done", not "bare": nothing is deleted`},
		{"delete by a path", "POST", "/api/delete", "", post(nil), `{"id":"../done","value":"done"}`, 404, `there is no run "../done" here`},
		{"delete with GET", "GET", "/api/delete?id=" + done, "", nil, "", 405, "is asked for with POST"},
		{"chat without the token", "POST", "/api/chat", "", head{"Content-Type": "application/json"}, `{"id":"` + done + `"}`, 401, "needs the token"},
		{"chat with nothing", "POST", "/api/chat", "", post(nil), `{"id":"` + done + `"}`, 400, "a conversation has 1 to 200 messages"},
		{"chat without end", "POST", "/api/chat", "", post(nil), `{"id":"` + done + `","chat":{"messages":[{"role":"user","content":"x"}],"max_tokens":1000000}}`, 400, "an answer has 1 to 32768 tokens"},
		{"chat with a run that saved nothing", "POST", "/api/chat/open", "", post(nil), `{"id":"` + done + `"}`, 409, "done has saved no adapter yet"},
		{"a preview of a wrong configuration", "POST", "/api/preview", "", post(nil), `{"config":"wrong"}`, 422, "seed: must be a number"},
		{"a preview from a wrong row", "POST", "/api/preview", "", post(nil), `{"config":"x","value":"-1"}`, 400, "the first row is a number from 0"},
		{"a file without the token", "POST", "/api/upload?name=a.jsonl", "", nil, "x", 401, "needs the token"},
		{"a file of a page elsewhere", "POST", "/api/upload?name=a.jsonl", "", post(head{"Origin": "http://evil.example"}), "x", 403, "a page of http://evil.example asked for this"},
		{"a file where none is taken", "POST", "/api/upload?name=a.jsonl", "", post(nil), "x", 409, "this server takes no files"},
		{"resume what has finished", "POST", "/api/resume", "", post(nil), `{"id":"` + done + `"}`, 409, "done has finished: start a new run to train further (lora.init_from)"},
		{"resume without a checkpoint", "POST", "/api/resume", "", post(nil), `{"id":"` + bare + `"}`, 409, "bare saved no checkpoint to resume from"},
		{"take out what is not there", "POST", "/api/remove", "", post(nil), `{"id":"../../x"}`, 404, "it waits no longer: no run of this name waits"},
		{"move what is not there", "POST", "/api/move", "", post(nil), `{"id":"../../x","value":"up"}`, 404, "it waits no longer: no run of this name waits"},
		{"move elsewhere", "POST", "/api/move", "", post(nil), `{"id":"x","value":"left"}`, 400, `a run of the queue is moved up or down, not "left"`},
		{"move without the token", "POST", "/api/move", "", head{"Content-Type": "application/json"}, `{"id":"x","value":"up"}`, 401, "this needs the token"},
		{"another site moves", "POST", "/api/move", "", post(head{"Sec-Fetch-Site": "cross-site"}), `{"id":"x","value":"up"}`, 403, "a page of another site asked for this"},
		{"no width", "GET", "/api/events", "", nil, "", 400, "width is a plot's in pixels, from 1 to 10000"},
		{"a width of millions", "GET", "/api/events?width=1000000", "", nil, "", 400, "width is a plot's in pixels, from 1 to 10000"},
		{"too many runs", "GET", "/api/events?width=5&show=" + strings.Repeat("a,b", 1) + many(101), "", nil, "", 400, "at most 100 runs stand beside each other"},
		{"no range", "GET", "/api/points?width=5&from=NaN&to=3", "", nil, "", 400, "from and to are the ends of a range"},
		{"no plot", "GET", "/api/points?width=5&from=1&to=3&show=" + done + "&piece=head", "", nil, "", 404, "there is no such plot"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(c.method, "http://127.0.0.1:7878/", strings.NewReader(c.body))
			path, query, _ := strings.Cut(c.url, "?")
			r.URL.Path, r.URL.RawQuery = strings.ReplaceAll(path, "%2e", "."), query
			if c.host != "" {
				r.Host = strings.TrimSpace(c.host)
			}
			for k, v := range c.head {
				r.Header.Set(k, v)
			}
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			text := w.Body.String()
			var answer struct{ Error string }
			if json.Unmarshal([]byte(text), &answer) == nil {
				text = answer.Error
			}
			if w.Code != c.code || !strings.Contains(text, c.want) {
				t.Errorf("status %d, want %d; %q, want %q", w.Code, c.code, short(text), c.want)
			}
			if got := w.Header().Get("Content-Security-Policy"); got != policy {
				t.Errorf("policy %q", got)
			}
		})
	}
	if all, err := s.o.Queue.List(); err != nil || len(all) != 0 {
		t.Errorf("the queue holds %v, %v", all, err)
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ",%d", i)
	}
	return b.String()
}

// TestGuardedReads: where other machines reach the page, reading needs the token too.
func TestGuardedReads(t *testing.T) {
	s, _ := fixture(t, func(o *Options) { o.Guarded = true })
	for given, code := range map[string]int{"": 401, "x": 401, token: 200} {
		r := httptest.NewRequest("GET", "http://127.0.0.1/api/form", nil)
		r.Header.Set("X-Trainer-Token", given)
		w := httptest.NewRecorder()
		if s.Handler().ServeHTTP(w, r); w.Code != code {
			t.Errorf("with %q: %d, want %d", given, w.Code, code)
		}
	}
}

// serve starts the server for good.
func serve(t *testing.T, s *Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// TestWrongHTTP: what is no request, has no end or is far too large is hung up on, and others are served meanwhile.
func TestWrongHTTP(t *testing.T) {
	headerTime = 200 * time.Millisecond
	t.Cleanup(func() { headerTime = 5 * time.Second })
	s, _ := fixture(t, nil)
	address := serve(t, s)
	for name, c := range map[string]struct{ send, want string }{
		"no HTTP":             {"\x00\x01\x02\r\n\r\n", "400 Bad Request"},
		"another version":     {"GET / HTTP/9.9\r\n\r\n", "505 HTTP Version Not Supported"},
		"no host":             {"GET / HTTP/1.1\r\n\r\n", "400 Bad Request"},
		"two lengths":         {"POST /api/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", "400 Bad Request"},
		"a large head":        {"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 40<<10) + "\r\n\r\n", "431 Request Header Fields Too Large"},
		"a head without end":  {"GET / HTTP/1.1\r\nHost: localhost\r\n", ""},
		"a body without end":  {"POST /api/check HTTP/1.1\r\nHost: localhost\r\nX-Trainer-Token: " + token + "\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{", "400 Bad Request"},
		"100 MB":              {"POST /api/check HTTP/1.1\r\nHost: localhost\r\nX-Trainer-Token: " + token + "\r\nContent-Type: application/json\r\nContent-Length: 104857600\r\n\r\n" + strings.Repeat(" ", 2<<20), "413 Request Entity Too Large"},
		"a path with an end":  {"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n", "400 Bad Request"},
		"a folder above":      {"GET /../../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", "404 Not Found"},
		"a foreign address":   {"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403 Forbidden"},
		"another server's":    {"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", "403 Forbidden"},
		"a chunk of nonsense": {"POST /api/check HTTP/1.1\r\nHost: localhost\r\nX-Trainer-Token: " + token + "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400 Bad Request"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c1, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer c1.Close()
			c1.SetDeadline(time.Now().Add(5 * time.Second)) //nolint:errcheck // reading tells
			go io.WriteString(c1, c.send)                   //nolint:errcheck // the server may hang up meanwhile
			line, _ := bufio.NewReader(c1).ReadString('\n')
			if !strings.Contains(line, c.want) || c.want == "" && line != "" && !strings.Contains(line, "408") {
				t.Errorf("%q, want %q", line, c.want)
			}
		})
	}
}

// TestSlowReaders: who does not read what it asked for holds nobody else up, and too many are told so.
func TestSlowReaders(t *testing.T) {
	s, root := fixture(t, nil)
	write(t, root, "a", train.MetricsFile, steps(1, 5_000))
	address := serve(t, s)
	id := idOf(filepath.Join(root, "a"))
	for range mostStreams - 1 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET /api/events?width=4000&show=%s HTTP/1.1\r\nHost: localhost\r\n\r\n", id)
	}
	events := listenTo(t, address, id)
	for name := ""; name != "page"; {
		name, _ = events()
	}
	var code atomic.Int32
	for range 200 { // the streams that do not read may still be about to begin
		r, err := http.Get("http://" + address + "/api/events?width=100")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if code.Store(int32(r.StatusCode)); r.StatusCode == http.StatusServiceUnavailable {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("one more stream than there is room for: %d", code.Load())
}

// FuzzRequests asks for anything: nothing is reached without the token.
func FuzzRequests(f *testing.F) {
	f.Add("POST", "/api/start", "id=x", `{"config":"x"}`, "127.0.0.1", "http://127.0.0.1", "")
	f.Add("GET", "/api/points", "width=1&from=1&to=2&piece=p0-0&show=x", "", "localhost:1", "", "same-origin")
	f.Add("GET", "/../..", "", "", "[::1]:7", "null", "none")
	f.Fuzz(func(t *testing.T, method, path, query, body, host, origin, site string) {
		reached := false
		s, _ := fixture(t, func(o *Options) {
			o.Check = func([]byte) Checked { reached = true; return Checked{} }
			o.Edit = func([]byte, string, string) ([]byte, error) { reached = true; return nil, nil }
		})
		r := httptest.NewRequest("GET", "http://127.0.0.1/", strings.NewReader(body))
		r.Method, r.URL.Path, r.URL.RawQuery, r.Host = method, path, query, host
		r.Header["Origin"], r.Header["Sec-Fetch-Site"], r.Header["Content-Type"] = []string{origin}, []string{site}, []string{"application/json"}
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // events end after their first
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r.WithContext(ctx))
		if reached {
			t.Errorf("%s %s: %d without the token", method, path, w.Code)
		}
	})
}

// TestIdleConnections: connections that stay open without asking keep nobody out.
func TestIdleConnections(t *testing.T) {
	s, _ := fixture(t, nil)
	address := serve(t, s)
	for range mostConnections {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(20 * time.Second)) //nolint:errcheck // reading tells
		fmt.Fprint(c, "GET /live.css HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second)) //nolint:errcheck // reading tells
	fmt.Fprint(c, "GET /live.css HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if line, err := bufio.NewReader(c).ReadString('\n'); !strings.Contains(line, "200 OK") || time.Since(start) > 5*time.Second {
		t.Errorf("one more: %q, %v, after %v", line, err, time.Since(start))
	}
}
