// Package live shows training runs on a local page while they train: the page of package report in pieces, each sent
// again when the run's files change. It reads the files of runs and never talks to a training process.
//
// Requests that change something need the server's token, and requests of other sites' pages are refused. Folders of
// runs are untrusted input: a request names a run by an id that the server made, and all texts are escaped.
package live

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/tierlora/tierlora/internal/listen"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/report/queue"
	"github.com/tierlora/tierlora/report/runs"
)

// Options sets which folders a server shows, who may use it, and how it starts runs.
type Options struct {
	Roots    []string // folders of runs, or folders that contain such folders
	Host     string   // name or address that the server listens on
	Token    string   // token of requests that change something
	Guarded  bool     // reading needs the token too
	Queue    *queue.Queue
	Program  string   // the training program, called as Program train --config FILE
	Data     string   // folder that takes uploaded data; "" = no uploads
	MostData int64    // largest size of an uploaded file in bytes
	Worker   []string // arguments that make Program a worker of the queue

	Settings func(config []byte) ([]runs.Setting, error) // returns the keys of a configuration
	Check    func(config []byte) Checked
	// Edit returns the configuration with a key set, or removed if value is "".
	Edit      func(config []byte, key, value string) ([]byte, error)
	Fields    []Field // keys of the form
	Templates []Template
}

// Checked is the result of checking a configuration.
type Checked struct {
	Problems  []Problem         `json:"problems"`
	Values    map[string]string `json:"values"` // values that the text itself sets, by key
	Notes     []string          `json:"notes,omitempty"`
	Wants     queue.Wants       `json:"-"` // what the run needs of the machine, for the queue
	OutputDir string            `json:"output_dir,omitempty"`
}

// Problem is a mistake in a configuration.
type Problem struct {
	Key     string `json:"key,omitempty"`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// Field is a key of a configuration in the form for a new run.
type Field struct {
	Key      string   `json:"key"`
	Kind     string   `json:"kind"`
	About    string   `json:"about"`
	Default  string   `json:"default,omitempty"`
	Choices  []string `json:"choices,omitempty"`
	Required bool     `json:"required,omitempty"`
}

// Template is a configuration that the form offers to start with.
type Template struct {
	Name  string `json:"name"`
	About string `json:"about"`
	Text  string `json:"text"`
}

// NewToken returns a random token of 48 hexadecimal digits.
func NewToken() string {
	b := make([]byte, 24)
	rand.Read(b) //nolint:errcheck // it never fails
	return hex.EncodeToString(b)
}

// Server answers the requests of the live page.
type Server struct {
	o        Options
	hub      *hub
	done     context.Context
	streams  chan struct{} // holds one value for each open event stream
	planning sync.Mutex
	kicked   time.Time
	kick     sync.Mutex
	chatter  chatter
	uploads  chan struct{} // holds one value while a file is received
}

// Limits on open streams, open connections and request bodies.
const (
	mostStreams     = 32
	mostConnections = 128
	mostBody        = 1 << 20 // such as a configuration
)

// headerTime is how long the header of a request may take to arrive; its body may take twice as long.
var headerTime = 5 * time.Second

// New returns a server. When ctx ends, its event streams end.
func New(ctx context.Context, o Options) *Server {
	return &Server{o: o, hub: newHub(o), done: ctx, streams: make(chan struct{}, mostStreams), uploads: make(chan struct{}, 1)}
}

// Serve answers requests on a listener until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	places := listen.Bound(l, mostConnections)
	server := &http.Server{Handler: s.Handler(), ConnState: places.State, ReadHeaderTimeout: headerTime, ReadTimeout: 3 * headerTime, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: quietLog}
	defer s.chatClose(nil, request{}) //nolint:errcheck // it never fails
	ended := make(chan error, 1)
	rescue.Go(func() { ended <- server.Serve(places) })
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := server.Shutdown(soon); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return server.Close()
}
