// The program jinja_server renders templates for scripts/jinja_fuzz.py: a JSON object with source and vars on
// each line of standard input, {"text", "generation"} or {"error", "kind"} on each line of standard output.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tierlora/tierlora/text/jinja"
)

type request struct {
	Source string          `json:"source"`
	Vars   json.RawMessage `json:"vars"`
}

type answer struct {
	Text       *string  `json:"text,omitempty"`
	Generation [][2]int `json:"generation,omitempty"` // code points
	Error      string   `json:"error,omitempty"`
	Kind       string   `json:"kind,omitempty"`
}

// now is what strftime_now tells.
var now = time.Date(2025, 3, 14, 15, 9, 26, 0, time.UTC)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "jinja_server:", err)
		os.Exit(1)
	}
}

func serve() error {
	in := bufio.NewReaderSize(os.Stdin, 1<<16)
	out := bufio.NewWriter(os.Stdout)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) == 0 {
			return out.Flush()
		}
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		if err := enc.Encode(render(r)); err != nil {
			return err
		}
		if in.Buffered() == 0 || err != nil {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

func render(r request) answer {
	vars, err := jinja.FromJSON(r.Vars)
	if err != nil {
		return answer{Error: err.Error()}
	}
	t, err := jinja.Compile(r.Source)
	if err != nil {
		return refused(err)
	}
	got, err := t.Render(vars.(*jinja.Dict), jinja.Options{Now: now})
	if err != nil {
		return refused(err)
	}
	return answer{Text: &got.Text, Generation: got.CodePoints}
}

func refused(err error) answer {
	var e *jinja.Error
	if errors.As(err, &e) {
		return answer{Error: err.Error(), Kind: e.Kind}
	}
	return answer{Error: err.Error()}
}
