package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/train"
)

// configOptions are the flags of every command that reads a configuration.
type configOptions struct {
	config string
	sets   []string
	vram   string
}

func (o *configOptions) register(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.config, "config", "c", "", "configuration `FILE`; looked for here, in configs/, and among the built-in ones")
	cmd.Flags().StringArrayVar(&o.sets, "set", nil, "set one `KEY=VALUE`, such as training.max_steps=10; may be repeated")
	cmd.Flags().StringVar(&o.vram, "vram", "", "memory that the run may hold, such as 8GiB; short for --set vram=")
}

func (o *configOptions) load() (loaded, error) {
	if o.vram != "" {
		o.sets = append(o.sets, "vram="+o.vram)
	}
	return loadConfig(o.config, o.sets)
}

// environment is what runs of the train package take from this program.
func environment(c *console, workers int) train.Env {
	return train.Env{
		Version: version(),
		Workers: workers,
		Model:   configs.Model,
		Data:    configs.Data,
		Log:     func(line string) { c.say("%s", line) },
	}
}

// writeJSON writes a value for programs.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// isTerminal reports whether a person watches the writer.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// mayColour reports whether escape sequences may be written: to a terminal, and not against https://no-color.org.
func mayColour(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
