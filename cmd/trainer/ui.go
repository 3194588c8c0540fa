package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/internal/filename"
	"github.com/tierlora/tierlora/report/live"
	"github.com/tierlora/tierlora/report/queue"
	"github.com/tierlora/tierlora/session"
)

type uiOptions struct {
	host  string
	port  int
	queue string
	data  string
	most  string
	json  bool
}

// defaultRuns is the folder shown by default. Runs of the built-in configurations write to it.
const defaultRuns = "runs"

func newUI(c *console) *cobra.Command {
	o := &uiOptions{}
	cmd := &cobra.Command{
		Use:   "ui [FOLDER...]",
		Short: "Dashboard in the browser: watch, start, stop and resume runs",
		Long: `Show runs on a local web page while they train. Each FOLDER is a run's output folder, or holds several; the default is
runs. The page reads the runs' files, so it never slows a run, and it shows ended runs too.

The printed address contains a token; with it the page starts, stops and resumes runs. Started runs wait in a queue,
which trains one run per GPU, several on one GPU if their vram limits fit together, and one on the CPU. Queue and runs
continue after this program ends. Without the token the page is read-only. The page listens on this machine only, unless
--host is set; then reading needs the token too.`,
		Example: `  trainer ui
  trainer ui runs/a runs/b --port 0
  trainer ui --host 0.0.0.0 --port 7000`,
		RunE: func(cmd *cobra.Command, args []string) error { return runUI(cmd.Context(), c, o, args) },
	}
	cmd.Flags().StringVar(&o.host, "host", "127.0.0.1",
		"`ADDRESS` to listen on; unless it is a loopback address, reading needs the token too")
	cmd.Flags().IntVar(&o.port, "port", 7878, "`PORT` to listen on; 0 = any free port")
	pathVar(cmd, &o.queue, "queue", "", "`FOLDER` of the queue; default: in the user's state folder")
	pathVar(cmd, &o.data, "data", "", "allow uploads of data files into this `FOLDER`; default: no uploads")
	cmd.Flags().StringVar(&o.most, "most-data", "1GiB", "largest data file to accept, a `SIZE`")
	cmd.Flags().BoolVar(&o.json, "json", false, "print address and token as JSON")
	cmd.AddCommand(newUIWork())
	return cmd
}

// newUIWork makes the hidden command that runs the queue.
func newUIWork() *cobra.Command {
	return &cobra.Command{
		Use:     "work QUEUE [FOLDER...]",
		Short:   "Train what waits in a queue, beside the runs in these folders",
		Example: "  trainer ui work queue runs",
		Hidden:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(errors.New("trainer ui work takes the queue's folder and the folders of runs"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := queue.Open(args[0])
			if err != nil {
				return err
			}
			program, err := os.Executable()
			if err != nil {
				return err
			}
			return q.Work(cmd.Context(), program, machineOf(args[1:]))
		},
	}
}

func runUI(ctx context.Context, c *console, o *uiOptions, roots []string) error {
	if o.port < 0 || o.port > 65535 {
		return usage(fmt.Errorf("--port %d: a port is a number from 0 to 65535", o.port))
	}
	if len(roots) > mostReported {
		return usage(fmt.Errorf("trainer ui takes at most %d folders, got %d: name the folder that holds them",
			mostReported, len(roots)))
	}
	for i, root := range roots {
		roots[i] = filename.ExpandHome(root)
		if info, err := os.Stat(roots[i]); err != nil {
			return usage(fmt.Errorf("%w; name a run's output folder (output_dir), or a folder of them", err))
		} else if !info.IsDir() {
			return usage(fmt.Errorf("%s is no folder; name a run's output folder (output_dir), or a folder of them",
				root))
		}
	}
	if len(roots) == 0 {
		roots = []string{defaultRuns}
	}
	most, err := session.ParseBytes(o.most)
	if err != nil || most < 1 {
		return usage(fmt.Errorf("--most-data %s: want a size such as 1GiB", o.most))
	}
	if o.data != "" {
		if o.data, err = filepath.Abs(o.data); err == nil {
			err = os.MkdirAll(o.data, 0o755)
		}
		if err != nil {
			return usage(fmt.Errorf("--data: %w", err))
		}
	}
	q, err := openQueue(o.queue)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(o.host, strconv.Itoa(o.port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return unfit(
			fmt.Errorf("port %d of %s is in use, by another trainer ui perhaps: choose another --port; 0 takes any "+
				"that is free", o.port, o.host))
	}
	if err != nil {
		return usage(fmt.Errorf("--host %s --port %d: %w", o.host, o.port, err))
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	address := listener.Addr().(*net.TCPAddr)
	options := live.Options{Roots: roots, Host: o.host, Token: live.NewToken(), Guarded: !address.IP.IsLoopback(),
		Queue: q, Program: program, Data: o.data, MostData: most,
		Worker: append([]string{"ui", "work", q.Dir()}, absolute(roots)...), Settings: settingsOf, Check: checkedText,
		Edit: config.Edit, Fields: fields(), Templates: templates()}
	if err := sayAddress(c, o, address, options); err != nil {
		return err
	}
	if err := live.New(ctx, options).Serve(ctx, listener); err != nil {
		return fmt.Errorf("serve the page: %w", err)
	}
	return nil
}

// absolute returns paths that do not depend on the working folder.
func absolute(paths []string) []string {
	all := make([]string, len(paths))
	for i, p := range paths {
		all[i] = p
		if abs, err := filepath.Abs(p); err == nil {
			all[i] = abs
		}
	}
	return all
}

// openQueue opens the queue of a user's runs.
func openQueue(dir string) (*queue.Queue, error) {
	if dir == "" {
		state := os.Getenv("XDG_STATE_HOME")
		if !filepath.IsAbs(state) {
			home, err := os.UserHomeDir()
			if err != nil {
				return nil, usage(fmt.Errorf("there is no home folder to keep the queue in (%w): name one with --queue",
					err))
			}
			state = filepath.Join(home, ".local", "state")
		}
		dir = filepath.Join(state, "tierlora", "queue")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, usage(err)
	}
	q, err := queue.Open(dir)
	if err != nil {
		return nil, usage(fmt.Errorf("%w; name another one with --queue", err))
	}
	return q, nil
}

// sayAddress prints the page's address.
func sayAddress(c *console, o *uiOptions, address *net.TCPAddr, options live.Options) error {
	host := address.IP.String()
	if address.IP.IsUnspecified() {
		host = "127.0.0.1"
		if name, err := os.Hostname(); err == nil && options.Host == name {
			host = name
		}
	}
	page := "http://" + net.JoinHostPort(host, strconv.Itoa(address.Port)) + "/"
	if o.json {
		return writeJSON(c.out, struct {
			URL   string `json:"url"`
			Token string `json:"token"`
		}{page, options.Token})
	}
	if _, err := fmt.Fprintf(c.out, "%s#token=%s\n", page, options.Token); err != nil {
		return fmt.Errorf("write the address: %w", err)
	}
	if options.Guarded {
		c.say("note: other machines can reach this page; who has its address with the token can start runs here")
	}
	c.say("Ctrl-C ends the page; runs and the queue go on")
	return nil
}
