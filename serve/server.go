package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tierlora/tierlora/internal/listen"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// Options sets a server's limits. Zero selects the default.
type Options struct {
	Host           string // name or address on which it listens, for checking Host headers
	APIKey         string // "" = not required
	AllowOrigins   []string
	Waiting        int           // requests that may wait for a slot
	Timeout        time.Duration // from a request's arrival to its last token
	MaxBody        int64         // bytes of one body
	MaxBodies      int64         // bytes of all bodies that are being read and parsed
	MaxConnections int
	HeaderTimeout  time.Duration // for reading a request's headers
	BodyTimeout    time.Duration // for reading its body
	IdleTimeout    time.Duration // between the requests of a connection
	WriteTimeout   time.Duration // for one write to a client
	Log            func(line string)
}

func (o *Options) defaults() {
	set := func(to *time.Duration, d time.Duration) {
		if *to == 0 {
			*to = d
		}
	}
	set(&o.Timeout, 10*time.Minute)
	set(&o.HeaderTimeout, 10*time.Second)
	set(&o.BodyTimeout, 30*time.Second)
	set(&o.IdleTimeout, 2*time.Minute)
	set(&o.WriteTimeout, 20*time.Second)
	if o.Waiting == 0 {
		o.Waiting = 128
	}
	if o.MaxBody == 0 {
		o.MaxBody = 16 << 20
	}
	if o.MaxBodies == 0 {
		o.MaxBodies = 4 * o.MaxBody
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = 512
	}
	if o.Log == nil {
		o.Log = func(string) {}
	}
}

// maxHeaders is the most bytes of a request's line and headers.
const maxHeaders = 32 << 10

// Server answers HTTP requests with an engine.
type Server struct {
	lib       *Library
	o         Options
	guard     guard
	work      work
	scheduler *Scheduler // nil for models with a head
	batcher   *Batcher   // nil for models that write text
	metrics   metrics
	intake    intake
	http      *http.Server
	noted     sync.Map // names of models whose TextNote was logged
}

// work computes the answers of requests: a Scheduler or a Batcher.
type work interface {
	Run()
	Done() <-chan struct{}
	Close(ctx context.Context) error
	Closing() bool
	Stats() Stats
}

// New makes a server for models that write text, with the engine e.
func New(lib *Library, e Engine, o Options) (*Server, error) {
	o.defaults()
	scheduler := NewScheduler(e, o.Waiting)
	s, err := newServer(lib, scheduler, o)
	if err == nil {
		s.scheduler = scheduler
	}
	return s, err
}

// NewHeads makes a server for models that give scores or vectors of texts.
func NewHeads(lib *Library, p Predictor, o Options) (*Server, error) {
	o.defaults()
	batcher := NewBatcher(p, o.Waiting)
	s, err := newServer(lib, batcher, o)
	if err == nil {
		s.batcher = batcher
	}
	return s, err
}

func newServer(lib *Library, w work, o Options) (*Server, error) {
	if err := lib.Check(); err != nil {
		return nil, err
	}
	s := &Server{lib: lib, o: o, guard: newGuard(o), work: w, metrics: newMetrics(), intake: intake{most: o.MaxBodies}}
	s.http = &http.Server{
		Handler: s, ReadHeaderTimeout: o.HeaderTimeout, IdleTimeout: o.IdleTimeout, MaxHeaderBytes: maxHeaders,
		ErrorLog: log.New(io.Discard, "", 0), // clients' protocol errors are not logged
	}
	return s, nil
}

// Run computes the answers until Close, or until the engine has failed permanently. It must be called once, by the
// goroutine that made the engine.
func (s *Server) Run() { s.work.Run() }

// Serve answers requests until Close, or until the engine has failed permanently, and returns that failure.
func (s *Server) Serve(l net.Listener) error {
	ended := make(chan error, 1)
	places := listen.Bound(l, s.o.MaxConnections)
	s.http.ConnState = places.State
	rescue.Go(func() { ended <- s.http.Serve(places) })
	select {
	case err := <-ended:
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		return err
	case <-s.work.Done():
		err := s.work.Close(context.Background())
		if err == nil {
			err = <-ended
			if errors.Is(err, http.ErrServerClosed) {
				err = nil
			}
			return err
		}
		s.shut(2 * time.Second)
		return err
	}
}

// Close rejects new requests, finishes the present ones or cancels them when ctx ends, and closes the connections.
func (s *Server) Close(ctx context.Context) error {
	err := s.work.Close(ctx)
	s.shut(2 * time.Second)
	return err
}

// shut closes the connections; those with an active response get some time.
func (s *Server) shut(wait time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
}

// recorder remembers the status of a response.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap returns the wrapped writer for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec := &recorder{ResponseWriter: w}
	conn := http.NewResponseController(w)
	// needed even if the body is not read: net/http discards the rest
	_ = conn.SetReadDeadline(time.Now().Add(s.o.BodyTimeout))
	_ = conn.SetWriteDeadline(time.Now().Add(s.o.WriteTimeout + s.o.BodyTimeout + s.o.Timeout))
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			s.o.Log(fmt.Sprintf("%s %s: a mistake of this program: %v\n%s", r.Method, r.URL.Path, p, debug.Stack()))
			if rec.status != 0 {
				panic(http.ErrAbortHandler)
			}
			asError(errors.New("")).write(rec)
		}
		s.metrics.count(known(r.URL.Path), rec.status)
	}()
	rec.Header().Set("X-Content-Type-Options", "nosniff")
	if err := s.route(rec, r); err != nil {
		if err.Status == http.StatusTooManyRequests {
			err.RetryAfter = s.retryAfter()
		}
		if r.ContentLength != 0 {
			rec.Header().Set("Connection", "close") // the rest of the body is not read
		}
		err.write(rec)
	}
}

// paths maps each path to its method.
var paths = map[string]string{
	"/v1/chat/completions": http.MethodPost, "/v1/completions": http.MethodPost,
	"/v1/models": http.MethodGet, "/health": http.MethodGet, "/metrics": http.MethodGet,
	pathEmbeddings: http.MethodPost, pathRerank: http.MethodPost, pathClassify: http.MethodPost,
}

const modelsPath = "/v1/models/"

// known returns a path's name in the metrics.
func known(path string) string {
	switch {
	case paths[path] != "":
		return path
	case headPaths[path] != "":
		return headPaths[path]
	case pages[path][1] != "":
		return "/"
	case strings.HasPrefix(path, modelsPath):
		return "/v1/models"
	}
	return "other"
}

func (s *Server) route(w http.ResponseWriter, r *http.Request) *Error {
	if err := s.guard.hosts(r); err != nil {
		return err
	}
	origin, refusal := s.guard.origin(r)
	if refusal != nil {
		return refusal
	}
	if origin != "" {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", origin)
		h.Add("Vary", "Origin")
		if r.Method == http.MethodOptions {
			h.Set("Access-Control-Allow-Methods", "GET, POST")
			h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type")
			h.Set("Access-Control-Max-Age", "600")
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
	}
	path := r.URL.Path
	if file, ok := pages[path]; ok && !s.lib.Heads() {
		return page(w, r, file)
	}
	if of := headPaths[path]; of != "" {
		path = of
	}
	method := paths[path]
	if method == "" && strings.HasPrefix(path, modelsPath) {
		method = http.MethodGet
	}
	switch {
	case method == "":
		return refused(http.StatusNotFound, "unknown_url", "there is no %s here; %s are", clip(path),
			strings.Join(sortedKeys(paths), ", "))
	case r.Method != method && !(r.Method == http.MethodHead && method == http.MethodGet):
		w.Header().Set("Allow", method)
		return refused(http.StatusMethodNotAllowed, "method_not_allowed", "%s takes %s, not %s", path, method,
			clip(r.Method))
	}
	if path != "/health" {
		if err := s.guard.keyed(r); err != nil {
			return err
		}
	}
	switch path {
	case "/health":
		return s.health(w)
	case "/metrics":
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = io.WriteString(w, s.metrics.text(s.work.Stats()))
	case pathEmbeddings, pathRerank, pathClassify:
		return s.predict(w, r, map[string]func([]byte) (*headRequest, *Error){pathEmbeddings: s.lib.embeddingsRequest,
			pathRerank: s.lib.rankRequest, pathClassify: s.lib.classifyRequest}[path])
	case "/v1/chat/completions":
		return s.answer(w, r, s.lib.conversation)
	case "/v1/completions":
		return s.answer(w, r, s.lib.completion)
	default:
		return s.models(w, strings.TrimPrefix(strings.TrimPrefix(path, "/v1/models"), "/"))
	}
	return nil
}

func (s *Server) health(w http.ResponseWriter) *Error {
	if s.work.Closing() {
		return asError(ErrClosing)
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

type modelCard struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	Parent  string `json:"parent,omitempty"` // for an adapter: the base model
	MaxLen  int    `json:"max_model_len"`    // vLLM's name
}

// models lists the models, or describes one.
func (s *Server) models(w http.ResponseWriter, name string) *Error {
	card := func(m *Model) modelCard {
		c := modelCard{ID: m.Name, Object: "model", Created: s.lib.Created.Unix(), OwnedBy: "tierlora",
			MaxLen: s.lib.MaxLen}
		if m.Adapter != "" && s.lib.Models[0].Adapter == "" {
			c.Parent = s.lib.Models[0].Name
		}
		return c
	}
	if name != "" {
		m, err := s.lib.find(name)
		if err == nil {
			writeJSON(w, http.StatusOK, card(m))
		}
		return err
	}
	var all []modelCard
	for i := range s.lib.Models {
		all = append(all, card(&s.lib.Models[i]))
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": all})
	return nil
}

// body reads a request's JSON within the limits of time and size.
func (s *Server) body(w http.ResponseWriter, r *http.Request) (body []byte, release func(), _ *Error) {
	release = func() {}
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if kind = strings.TrimSpace(strings.ToLower(kind)); kind != "application/json" {
		return nil, release, refused(http.StatusUnsupportedMediaType, "unsupported_media_type",
			"the body is of type %q, want the header Content-Type: application/json", clip(kind))
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return nil, release, refused(http.StatusUnsupportedMediaType, "unsupported_encoding",
			"the body is packed (%s), want plain JSON", clip(coding))
	}
	large := refused(http.StatusRequestEntityTooLarge, "request_too_large", "the body has more than %d bytes",
		s.o.MaxBody)
	if r.ContentLength > s.o.MaxBody {
		return nil, release, large
	}
	body, release, err := s.intake.read(http.MaxBytesReader(w, r.Body, s.o.MaxBody))
	var tooLarge *http.MaxBytesError
	var slow net.Error
	switch {
	case errors.Is(err, errFull):
		return nil, release, refused(http.StatusTooManyRequests, "requests_too_large",
			"the requests at hand have %d MB together: ask again later", s.o.MaxBodies>>20)
	case errors.As(err, &tooLarge):
		return nil, release, large
	case errors.As(err, &slow) && slow.Timeout():
		return nil, release, refused(http.StatusRequestTimeout, "request_timeout", "the body did not arrive within %v",
			s.o.BodyTimeout)
	case err != nil:
		return nil, release, refused(http.StatusBadRequest, "incomplete_body",
			"the body is not whole: it ended after %d bytes", len(body))
	}
	// From here on, reading only detects that the client has disconnected.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return body, release, nil
}

// parsed reads a body and calls read with it. The body counts against intake until it is parsed.
func (s *Server) parsed(w http.ResponseWriter, r *http.Request, read func([]byte) *Error) (wrong *Error) {
	body, release, wrong := s.body(w, r)
	defer release()
	if wrong != nil {
		return wrong
	}
	var slow error
	func() {
		defer tokenizer.Caught(&slow)
		wrong = read(body)
	}()
	if slow != nil {
		return invalid("", "%s", slow)
	}
	return wrong
}

// answer serves both endpoints; read parses the body.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, read func([]byte) (*request, *Error)) *Error {
	arrived := time.Now()
	var req *request
	wrong := s.parsed(w, r, func(body []byte) (wrong *Error) {
		req, wrong = read(body)
		return wrong
	})
	if wrong != nil {
		return wrong
	}
	if m := req.model; !req.chat && m.TextNote != "" {
		if _, said := s.noted.LoadOrStore(m.Name, true); !said {
			s.o.Log(r.URL.Path + ": " + m.TextNote)
		}
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), s.o.Timeout, fmt.Errorf("%w, %v", errTimeout, s.o.Timeout))
	defer cancel()
	a, err := s.lib.start(ctx, s.scheduler, req)
	if err != nil {
		return asError(err)
	}
	defer func() { s.metrics.took(time.Since(arrived)) }()
	if !req.stream {
		out, err := s.lib.whole(ctx, a)
		if err != nil {
			return s.failed(r, err)
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.o.WriteTimeout))
		writeJSON(w, http.StatusOK, out)
		return nil
	}
	e := &events{w: w, limit: s.o.WriteTimeout}
	err = s.lib.streamed(ctx, e, a)
	switch {
	case err == nil || r.Context().Err() != nil:
	case !e.begun:
		return s.failed(r, err)
	default:
		var b strings.Builder
		if e.data(&b, map[string]*Error{"error": s.failed(r, err)}) == nil {
			_ = e.send(b.String())
		}
	}
	return nil
}

// failed returns the error for a client whose request ended without an answer, and logs what the client must not see.
func (s *Server) failed(r *http.Request, err error) *Error {
	if errors.Is(err, ErrEngine) {
		s.o.Log(fmt.Sprintf("%s: %v", r.URL.Path, err))
	}
	return asError(err)
}

// retryAfter estimates the seconds until a slot is free: the recent duration of a request times the number of requests
// that wait for each slot.
func (s *Server) retryAfter() int {
	stats := s.work.Stats()
	guess := s.metrics.mean().Seconds() * float64(stats.Waiting+1) / float64(stats.Slots)
	return int(math.Min(60, math.Max(1, math.Ceil(guess))))
}

// Address returns the URL by which clients reach the API on a listener.
func Address(l net.Listener, host string) string {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if host == "" || net.ParseIP(host).IsUnspecified() {
		host = "127.0.0.1"
	}
	if _, err := strconv.Atoi(port); err != nil {
		return l.Addr().String()
	}
	return "http://" + net.JoinHostPort(host, port) + "/v1"
}
