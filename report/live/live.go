// Package live shows training runs on a local page while they are on their way: the page of package report in pieces,
// which are sent again where a run's files have changed. It reads files and nothing else, so a run does not notice it.
//
// What starts, stops or checks a run needs the server's token, and pages of other sites reach nothing. Folders of runs
// are untrusted: they are named by numbers that the server gave, and their texts are escaped.
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

// Options is what a server shows, and how it starts runs.
type Options struct {
	Roots    []string // folders of runs, or of folders of runs
	Host     string   // that it listens on, a name or an address
	Token    string   // that writing needs
	Guarded  bool     // reading needs it too
	Queue    *queue.Queue
	Program  string   // the program that trains: Program train --config FILE
	Data     string   // a folder that takes uploaded data; "" = files are not taken
	MostData int64    // bytes of one uploaded file
	Worker   []string // words that make it work the queue off

	Settings  func(config []byte) ([]runs.Setting, error) // keys of a configuration
	Check     func(config []byte) Checked
	Edit      func(config []byte, key, value string) ([]byte, error) // with a key set, or taken out by ""
	Fields    []Field                                                // keys that a form has
	Templates []Template
}

// Checked is what the program says of a configuration.
type Checked struct {
	Problems  []Problem         `json:"problems"`
	Values    map[string]string `json:"values"` // that the text itself sets, by key
	Notes     []string          `json:"notes,omitempty"`
	Wants     queue.Wants       `json:"-"` // of the machine, for the queue
	OutputDir string            `json:"output_dir,omitempty"`
}

// Problem is a mistake in a configuration.
type Problem struct {
	Key     string `json:"key,omitempty"`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// Field is a key of a configuration as a form shows it.
type Field struct {
	Key      string   `json:"key"`
	Kind     string   `json:"kind"`
	About    string   `json:"about"`
	Default  string   `json:"default,omitempty"`
	Choices  []string `json:"choices,omitempty"`
	Required bool     `json:"required,omitempty"`
}

// Template is a configuration to begin with.
type Template struct {
	Name  string `json:"name"`
	About string `json:"about"`
	Text  string `json:"text"`
}

// NewToken is a token that nobody guesses.
func NewToken() string {
	b := make([]byte, 24)
	rand.Read(b) //nolint:errcheck // it never fails
	return hex.EncodeToString(b)
}

// Server answers a page.
type Server struct {
	o        Options
	hub      *hub
	done     context.Context
	streams  chan struct{} // room for those who listen
	planning sync.Mutex
	kicked   time.Time
	kick     sync.Mutex
	chatter  chatter
	uploads  chan struct{} // holds one while a file is received
}

// Bounds of what a server does for those who ask.
const (
	mostStreams     = 32
	mostConnections = 128
	mostBody        = 1 << 20 // as of a configuration
)

// headerTime is how long the head of a request may take to arrive; its body may take twice as long.
var headerTime = 5 * time.Second

// New makes a server; the end of ctx ends what it sends.
func New(ctx context.Context, o Options) *Server {
	return &Server{o: o, hub: newHub(o), done: ctx, streams: make(chan struct{}, mostStreams), uploads: make(chan struct{}, 1)}
}

// Serve answers on a listener until the end of ctx.
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
