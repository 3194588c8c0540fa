package live

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/report/runs"
	"github.com/tierlora/tierlora/train/checkpoint"
)

// Limits of a conversation with a run's adapter, which a process of its own serves.
const (
	chatStart    = 5 * time.Minute  // time to load the model
	chatIdle     = 10 * time.Minute // time after the last answer until the process is ended
	chatWrite    = 30 * time.Second // time for one piece of an answer to reach the page
	mostMessages = 200
	mostAnswer   = 32768 // in tokens
)

// adapterFile is the name of an adapter's weights, in a finished run's folder and in each checkpoint.
const adapterFile = "adapter_model.safetensors"

// chatter manages the process that answers: trainer serve on a free port of this machine, with a key of its own. There
// is at most one such process.
type chatter struct {
	mu       sync.Mutex
	adapter  string // folder that is served; "" = none
	url, key string
	model    string
	text     bool // the model has no chat template, so messages are continued as text
	end      context.CancelFunc
	ended    chan struct{}
	idle     *time.Timer
}

// chatting describes the process that answers to a page.
type chatting struct {
	Model   string `json:"model"`
	Adapter string `json:"adapter"` // folder of the adapter
	Text    bool   `json:"text"`    // messages are continued as text
}

// chatOpen makes a process load a run's adapter, in place of the one before.
func (s *Server) chatOpen(r *http.Request, q request) (any, error) {
	run, err := s.run(q.ID)
	if err != nil {
		return nil, err
	}
	dir, err := adapterOf(run)
	if err != nil {
		return nil, err
	}
	c := &s.chatter
	if !c.mu.TryLock() {
		return nil, refuse(http.StatusTooManyRequests, "another adapter is being loaded: try again when it is there")
	}
	defer c.mu.Unlock()
	if c.adapter != dir || !c.alive() {
		c.close()
		if err := c.open(r.Context(), s.done, s.o.Program, dir); err != nil {
			c.close()
			return nil, err
		}
	}
	c.idle.Reset(chatIdle)
	return chatting{c.model, dir, c.text}, nil
}

// adapterOf returns the folder of a run's newest adapter.
func adapterOf(r *runs.Run) (string, error) {
	dirs := []string{r.Dir}
	if n := len(r.Checkpoints); n > 0 {
		dirs = append(dirs, filepath.Join(r.Dir, checkpoint.Name(r.Checkpoints[n-1])))
	}
	for _, dir := range dirs {
		if info, err := os.Stat(filepath.Join(dir, adapterFile)); err == nil && info.Mode().IsRegular() {
			return dir, nil
		}
	}
	return "", refuse(http.StatusConflict, "%s has saved no adapter yet: wait for its first checkpoint", r.Name)
}

func (c *chatter) alive() bool {
	if c.ended == nil {
		return false
	}
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// close ends the process; the caller holds c.mu.
func (c *chatter) close() {
	if c.end != nil {
		c.end()
		<-c.ended
		c.idle.Stop()
	}
	c.adapter, c.end, c.ended, c.idle = "", nil, nil, nil
}

// open starts the process and waits until it answers; the caller holds c.mu.
func (c *chatter) open(asked, server context.Context, program, dir string) error {
	ctx, end := context.WithCancel(server)
	out, said := &io.PipeReader{}, &tail{}
	key := NewToken()
	cmd := exec.CommandContext(ctx, program, "serve", "--adapter", "run="+dir, "--port", "0", "--slots", "1", "--json")
	cmd.Env = append(os.Environ(), "TRAINER_API_KEY="+key)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	var in *io.PipeWriter
	out, in = io.Pipe()
	cmd.Stdout, cmd.Stderr = in, said
	c.ended = make(chan struct{})
	c.end, c.adapter, c.key = end, dir, key
	c.idle = time.AfterFunc(chatIdle, rescue.Wrap(end))
	if err := cmd.Start(); err != nil {
		close(c.ended)
		return fmt.Errorf("start the model: %w", err)
	}
	ended := c.ended
	rescue.Go(func() {
		cmd.Wait()                //nolint:errcheck // what it said tells why
		in.CloseWithError(io.EOF) //nolint:errcheck // it never fails
		close(ended)
	})
	ready := make(chan error, 1)
	var answer struct {
		URL    string   `json:"url"`
		Models []string `json:"models"`
	}
	rescue.Go(func() {
		err := json.NewDecoder(io.LimitReader(out, planBytes)).Decode(&answer)
		ready <- err
		io.Copy(io.Discard, out) //nolint:errcheck // until the process ends
	})
	select {
	case err := <-ready:
		if err != nil || len(answer.Models) == 0 {
			end()
			<-ended
			return refuse(http.StatusUnprocessableEntity, "the model does not start: %s", lastLine(said.String()))
		}
	case <-asked.Done():
		return asked.Err()
	case <-time.After(chatStart):
		return refuse(http.StatusGatewayTimeout, "the model was not loaded after %s", chatStart)
	}
	c.url, c.model = answer.URL, answer.Models[len(answer.Models)-1]
	c.text = !c.talks(asked)
	return nil
}

// lastLine returns the last line of a process's output, without its name.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimPrefix(lines[len(lines)-1], "trainer: ")
}

// talks reports whether the model answers conversations; without a chat template it does not.
func (c *chatter) talks(ctx context.Context) bool {
	r, err := c.request(ctx, "/chat/completions", map[string]any{"model": c.model, "max_tokens": 1, "messages": []message{{"user", "x"}}})
	if err != nil {
		return true
	}
	defer r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// local sends requests to this machine without a proxy.
var local = &http.Client{Transport: &http.Transport{Proxy: nil, DisableCompression: true}}

func (c *chatter) request(ctx context.Context, path string, body any) (*http.Response, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+c.key)
	return local.Do(r)
}

// message is one message of a conversation.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// asking is a page's request for an answer.
type asking struct {
	Messages    []message `json:"messages"`
	Temperature float64   `json:"temperature"`
	MaxTokens   int       `json:"max_tokens"`
}

// chat answers a conversation with the loaded adapter, and streams the answer in pieces.
func (s *Server) chat(w http.ResponseWriter, r *http.Request, q request) (any, error) {
	a := q.Chat
	switch {
	case len(a.Messages) == 0 || len(a.Messages) > mostMessages:
		return nil, refuse(http.StatusBadRequest, "a conversation has 1 to %d messages", mostMessages)
	case a.MaxTokens < 1 || a.MaxTokens > mostAnswer || !(a.Temperature >= 0 && a.Temperature <= 2):
		return nil, refuse(http.StatusBadRequest, "an answer has 1 to %d tokens, at a temperature from 0 to 2", mostAnswer)
	}
	run, err := s.run(q.ID)
	if err != nil {
		return nil, err
	}
	dir, err := adapterOf(run)
	if err != nil {
		return nil, err
	}
	c := &s.chatter
	c.mu.Lock()
	served, url, key, model, text, idle := c.adapter, c.url, c.key, c.model, c.text, c.idle
	on := c.alive()
	c.mu.Unlock()
	if !on || served != dir && filepath.Dir(served) != run.Dir && served != run.Dir {
		return nil, refuse(http.StatusConflict, "the adapter of %s is not loaded: load it first", run.Name)
	}
	idle.Reset(chatIdle)
	at := &chatter{url: url, key: key}
	path, body := "/chat/completions", map[string]any{"model": model, "messages": a.Messages, "stream": true, "temperature": a.Temperature, "max_tokens": a.MaxTokens}
	if text {
		delete(body, "messages")
		path, body["prompt"] = "/completions", a.Messages[len(a.Messages)-1].Content
	}
	answer, err := at.request(r.Context(), path, body)
	if err != nil {
		return nil, refuse(http.StatusBadGateway, "the model does not answer: %v", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, failure{answer.StatusCode, wrongOf(answer.Body)}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	control, piece := http.NewResponseController(w), make([]byte, 16<<10)
	for {
		n, err := answer.Body.Read(piece)
		if n > 0 {
			_ = control.SetWriteDeadline(time.Now().Add(chatWrite)) // not known to a recorder of a test
			if _, werr := w.Write(piece[:n]); werr != nil {
				return nil, nil // nobody listens
			}
			control.Flush() //nolint:errcheck // the next write finds it out
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && r.Context().Err() == nil {
				// the same.
				fmt.Fprintf(w, "data: {\"error\":{\"message\":\"the answer broke off: the model's process has ended\"}}\n\n") //nolint:errcheck
			}
			return nil, nil
		}
	}
}

// wrongOf returns the message of an error of the OpenAI-compatible API.
func wrongOf(in io.Reader) string {
	text, _ := io.ReadAll(io.LimitReader(in, 64<<10))
	var v struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(text, &v) != nil || v.Error.Message == "" {
		return "the model refuses to answer"
	}
	return v.Error.Message
}

// chatClose ends the process that answers, which frees its memory.
func (s *Server) chatClose(*http.Request, request) (any, error) {
	s.chatter.mu.Lock()
	defer s.chatter.mu.Unlock()
	s.chatter.close()
	return struct{}{}, nil
}
