package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/serve"
)

// apiKeyVariable is the environment variable for the API key if --api-key is not set: every user of a machine can read
// command lines.
const apiKeyVariable = "TRAINER_API_KEY"

// cutWait is the time that connections have to close after the second signal.
const cutWait = 5 * time.Second

type serveOptions struct {
	engineFlags
	host, name string
	system     string
	ownSystem  bool // --system was set, if only to ""
	port       int
	grace      time.Duration
	json       bool
	pooling    string
	textFlags  []string // those of ofText that were set
	serve.Options
}

func newServe(c *console) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve --model DIR [--adapter NAME=DIR ...]",
		Short: "Serve a model and its adapters: OpenAI-compatible server",
		Long: `Serve a model with an OpenAI-compatible API: /v1/chat/completions, /v1/completions, /v1/models, with /health, /metrics
and a chat page at /. Up to --slots requests are decoded together. Each adapter is a model with its own name; all share
one base model in memory.

Classifiers, rerankers, reward models and embedding models (docs/TASKS.md), adapters or merged folders, are served by
/v1/classify, /v1/rerank and /v1/embeddings instead.

The server listens on this machine only, unless --host is set. Ctrl-C and SIGTERM finish the running requests; a second
one quits at once.`,
		Example: `  trainer serve --model ./SmolLM2-135M-Instruct
  trainer serve --model ./Qwen3-0.6B --adapter support=runs/support --adapter sql=runs/sql --port 8000 --slots 16
  TRAINER_API_KEY=secret trainer serve --adapter runs/chat --host 0.0.0.0`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.checkServe(cmd); err != nil {
				return err
			}
			o.ownSystem = cmd.Flags().Changed("system")
			for _, name := range ofText {
				if cmd.Flags().Changed(name) {
					o.textFlags = append(o.textFlags, name)
				}
			}
			return runServe(cmd.Context(), c, o)
		},
	}
	o.register(cmd, c)
	f := cmd.Flags()
	f.StringVar(&o.name, "served-model-name", "", "`NAME` of the base model for clients; default: the folder's name")
	f.StringVar(&o.system, "system", "", "`TEXT` of the system message of conversations without one; default: the "+
		"one that the adapter was trained with; \"\" = none")
	f.StringVar(&o.pooling, "pooling", "", "serve vectors of the base model's hidden states, though it was not "+
		"trained for them: `HOW`, mean of the tokens or last token")
	f.StringVar(&o.host, "host", "127.0.0.1", "`ADDRESS` to listen on; 0.0.0.0 or :: for all interfaces")
	f.IntVar(&o.port, "port", 8000, "port to listen on; 0 = any free port")
	f.StringVar(&o.APIKey, "api-key", "", "`KEY` that clients must send; or the variable "+apiKeyVariable)
	f.IntVar(&o.slots, "slots", 0, fmt.Sprintf("sequences decoded together; 0 = %d, or fewer if memory is short",
		infer.DefaultSlots))
	f.IntVar(&o.Waiting, "queue", 128, "requests that may wait for a slot; further requests get status 429")
	f.DurationVar(&o.Timeout, "timeout", 10*time.Minute, "time limit of a request, from arrival to the last token")
	f.DurationVar(&o.grace, "grace", 30*time.Second, "time for requests to finish after Ctrl-C or SIGTERM")
	f.StringArrayVar(&o.AllowOrigins, "allow-origin", nil,
		"`ORIGIN` of web pages that may send requests, such as https://example.org, or * for all; may be repeated")
	f.BoolVar(&o.json, "json", false, "print address, models and memory as JSON when ready")
	return cmd
}

func (o *serveOptions) checkServe(cmd *cobra.Command) error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if o.port < 0 || o.port > 65535 {
		bad("--port %d: must lie in 0 to 65535", o.port)
	}
	if o.pooling != "" && o.pooling != poolingMean && o.pooling != poolingLast {
		bad("--pooling %s: must be mean or last", words.ShellQuote(o.pooling))
	}
	if o.pooling != "" && len(o.adapters) > 0 {
		bad("--pooling is for a base model alone: the folder of an adapter says how its vectors are made")
	}
	if o.Waiting < 1 {
		bad("--queue %d: must be at least 1", o.Waiting)
	}
	if o.Timeout <= 0 {
		bad("--timeout %v: must be above 0", o.Timeout)
	}
	if o.grace < 0 {
		bad("--grace %v: must be 0 or more", o.grace)
	}
	switch {
	case !cmd.Flags().Changed("api-key"):
		o.APIKey = os.Getenv(apiKeyVariable)
	case strings.TrimSpace(o.APIKey) == "":
		bad("--api-key: the key is empty; leave the flag out to ask for none")
	}
	for _, origin := range o.AllowOrigins {
		if u, err := url.Parse(origin); origin != "*" && (err != nil || u.Scheme == "" || u.Host == "" ||
			u.Path != "") {
			bad("--allow-origin %s: want an origin such as https://example.org, or *", words.ShellQuote(origin))
		}
	}
	safetext.Keep(o.APIKey)
	if err := errors.Join(problems...); err != nil {
		return usage(err)
	}
	return o.check()
}

func runServe(ctx context.Context, c *console, o serveOptions) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	var stopped stopSignal
	ready := make(chan struct{})
	stop := make(chan struct{})
	rescue.Go(func() {
		sig, ok := <-signals
		if !ok {
			return
		}
		stopped.set(sig)
		close(stop)
		select {
		case <-ready:
			c.say("%v: no more requests are taken; those that are here have %v to finish; signal again to quit now",
				sig, o.grace)
		default:
			cancel() // nothing is served yet
		}
		for next := range signals {
			stopped.set(next)
			cancel()
			time.AfterFunc(cutWait, rescue.Wrap(func() { os.Exit(stopped.exitCode()) }))
		}
	})
	listener, err := net.Listen("tcp", net.JoinHostPort(o.host, strconv.Itoa(o.port)))
	if err != nil {
		err = fmt.Errorf("listen on %s port %d: %w", o.host, o.port, err)
		if errors.Is(err, syscall.EADDRINUSE) {
			return unfit(fmt.Errorf("%w; --port 0 takes a free one", err))
		}
		if errors.As(err, new(*net.DNSError)) {
			return usage(err)
		}
		return unfit(err)
	}
	defer listener.Close()
	o.Host, o.Log = o.host, func(line string) { c.say("%s", line) }
	v, err := o.serving(ctx, c)
	if err != nil {
		return stopped.code(err)
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	close(ready)
	if err := o.announce(c, v, serve.Address(listener, o.host)); err != nil {
		return err
	}
	outcome := make(chan error, 1)
	rescue.Go(func() { outcome <- answer(ctx, v.server, listener, stop, o.grace, &stopped) })
	v.server.Run() // on this goroutine, which made the engine
	return <-outcome
}

// serving is a server with its models in memory.
type serving struct {
	io.Closer
	lib    *serve.Library
	server *serve.Server
	device string
	need   graph.Bytes
	slots  int // 0 for models with a head
}

// serving opens the models and makes their server.
func (o *serveOptions) serving(ctx context.Context, c *console) (*serving, error) {
	if err := o.checkNames(); err != nil && o.model != "" {
		return nil, err
	}
	heads, err := o.heads(ctx, c)
	if err != nil {
		return nil, err
	}
	if heads {
		return o.servingHeads(ctx, c)
	}
	e, err := o.open(ctx, c, infer.EngineOptions{Score: true})
	if err != nil {
		return nil, err
	}
	v := &serving{Closer: e, device: e.On.Name(), need: e.Need(), slots: e.Slots()}
	if err = o.checkNames(); err == nil {
		v.lib, err = o.library(c, e)
	}
	if err == nil {
		if v.server, err = serve.New(v.lib, e, o.Options); err != nil {
			err = usage(err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return v, nil
}

// answer serves clients until stop is closed, and then the present requests for as long as grace allows.
func answer(ctx context.Context, server *serve.Server, l net.Listener, stop <-chan struct{}, grace time.Duration,
	stopped *stopSignal) error {
	ended := make(chan error, 1)
	rescue.Go(func() { ended <- server.Serve(l) })
	select {
	case err := <-ended:
		return errors.Join(err, server.Close(ctx))
	case <-stop:
	}
	limit, end := context.WithTimeout(ctx, grace)
	defer end()
	if err := server.Close(limit); err != nil {
		return err
	}
	<-ended
	return &exitError{code: stopped.exitCode(), err: errors.New("stopped by a signal"), silent: true}
}

// code sets the signal's exit code on an error that a signal caused.
func (s *stopSignal) code(err error) error {
	if s.number.Load() == 0 {
		return err
	}
	return &exitError{code: s.exitCode(), err: err}
}

// library names the models and reads their chat templates. A model without one serves plain completions only.
func (o *serveOptions) library(c *console, e *infer.Engine) (*serve.Library, error) {
	lib := &serve.Library{Tokenizer: e.Base.Tokenizer, Vocabulary: e.Base.Config.VocabSize, MaxLen: e.MaxLen(),
		Created: time.Now()}
	if o.images {
		lib.ShowImages = e.ShowImages
	}
	for _, a := range e.Adapters() {
		m := serve.Model{Name: a, Adapter: a}
		if a == "" {
			m.Name = o.baseName()
		}
		var err error
		if m.Chat, err = e.Chat(a, o.template); err != nil {
			err = errors.New(asFlag(err))
			if o.template != "" {
				return nil, usage(err)
			}
			m.Chat, m.NoChat = nil, err
			c.say("note: %s answers no conversations: %s", m.Name, err)
		}
		if err := o.asTrained(c, e, &m); err != nil {
			return nil, err
		}
		lib.Models = append(lib.Models, m)
	}
	return lib, nil
}

// asTrained gives a model the system message of training unless --system sets another, and warns if conversations are
// rendered differently from the training rows.
func (o *serveOptions) asTrained(c *console, e *infer.Engine, m *serve.Model) error {
	p, err := e.PromptFormat(m.Adapter)
	if err != nil {
		return usage(err)
	}
	who := m.Name
	if m.Adapter != "" {
		who = whose(m.Name)
	}
	if p != nil && p.Only(dataset.PromptChat) {
		m.TextNote = fmt.Sprintf("%s was trained on conversations, and is asked with a text as it is: "+
			"/v1/chat/completions asks as in training", who)
	}
	if note := askedOtherwise(p, who, wayChat); note != "" && m.Chat != nil {
		c.say("note: /v1/chat/completions: %s, and so does /v1/completions with the same text", note)
	}
	if note := otherTemplate(p, who, m.Chat); note != "" {
		c.say("note: %s", note)
	}
	if m.System = o.system; !o.ownSystem {
		m.System = trainedSystem(p)
	}
	if m.System != "" && m.Chat != nil && !o.ownSystem {
		c.say("system: %s, with which %s was trained, for conversations that bring none; --system TEXT gives "+
			"another, --system \"\" none", shown(m.System), who)
	}
	return nil
}

// baseName returns the name by which clients select the base model.
func (o *serveOptions) baseName() string {
	if o.name != "" {
		return o.name
	}
	return modelName(o.model)
}

// checkNames returns an error if an adapter has the base model's name.
func (o *serveOptions) checkNames() error {
	for _, a := range o.named {
		if name := o.baseName(); a.Name == name {
			return usage(
				fmt.Errorf("two models are named %s: --served-model-name or --adapter NAME=DIR gives one of them "+
					"another name", name))
		}
	}
	return nil
}

// announce prints the models, the address and the memory.
func (o *serveOptions) announce(c *console, v *serving, address string) error {
	var names []string
	for _, m := range v.lib.Models {
		names = append(names, m.Name)
	}
	size := fmt.Sprintf("%d slots of %d tokens", v.slots, v.lib.MaxLen)
	if v.slots == 0 {
		size = fmt.Sprintf("texts of up to %d tokens", v.lib.MaxLen)
	}
	c.say("plan: %s on %s, %d adapters; %s", o.model, v.device, len(o.named), size)
	c.say("%s", memoryLines(v.need))
	if ip := net.ParseIP(o.host); o.APIKey == "" && (ip == nil || !ip.IsLoopback()) && o.host != "localhost" {
		c.say("note: whoever reaches %s may use this server: --api-key or %s asks for a key", o.host, apiKeyVariable)
	}
	if o.json {
		return writeJSON(c.out, map[string]any{"url": address, "models": names, "slots": v.slots,
			"max_length": v.lib.MaxLen, "bytes": v.need.Total(), "device": v.device})
	}
	_, err := fmt.Fprintf(c.out, "models   %s\nserving  %s\n", strings.Join(names, ", "), address)
	return err
}
