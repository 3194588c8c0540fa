package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/hub"
	"github.com/tierlora/tierlora/model/quantised"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

type modelJSON struct {
	Model      string       `json:"model"`
	Config     model.Config `json:"config"`
	Parameters int64        `json:"parameters"`
	Quantised  int          `json:"quantised"` // weights that are stored quantised
	Bytes      int64        `json:"bytes"`
	Tensors    []tensorJSON `json:"tensors"`
}

type tensorJSON struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	Bytes int    `json:"bytes"`
}

func newInspectModel(c *console) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "model DIR",
		Short: "Print a model's configuration and tensors",
		Long:  "Print a model's configuration and tensors. DIR is a model folder, a hub name, or embedded:NAME.",
		Example: `  trainer inspect model embedded:stories260K
  trainer inspect model ./SmolLM2-135M --json`,
		Args: oneArgument("a model folder, hub name or embedded:NAME"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			config, set, err := openModel(cmd, c, expandHome(args[0]))
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, set.Close()) }()
			known, err := quantised.Open(set, config.Quantization)
			if err != nil {
				return fmt.Errorf("model %s: %w", args[0], err)
			}
			answer := modelJSON{Model: args[0], Config: config, Quantised: known.Quantised(), Tensors: []tensorJSON{}}
			for _, name := range set.Names() {
				t, _ := set.Tensor(name)
				answer.Tensors = append(answer.Tensors, tensorJSON{name, t.DType.String(), t.Shape, len(t.Data)})
				answer.Bytes += int64(len(t.Data))
			}
			for _, name := range known.Names() {
				t, _ := known.Tensor(name)
				answer.Parameters += int64(t.Len())
			}
			if asJSON {
				return writeJSON(c.out, answer)
			}
			return printModel(c, answer)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	c.downloadFlag(cmd)
	return cmd
}

// openModel reads a model's configuration and opens its weights.
func openModel(cmd *cobra.Command, c *console, name string) (model.Config, *weights.Set, error) {
	if short, ok := strings.CutPrefix(name, session.EmbeddedPrefix); ok {
		fsys, err := configs.Model(short)
		if err != nil {
			return model.Config{}, nil, usage(err)
		}
		raw, err := fs.ReadFile(fsys, "config.json")
		if err != nil {
			return model.Config{}, nil, fmt.Errorf("read model config: %w", err)
		}
		config, err := families.ParseConfig(raw)
		if err != nil {
			return model.Config{}, nil, err
		}
		set, err := weights.OpenFS(fsys, ".")
		return config, set, err
	}
	dir, err := hub.Resolve(cmd.Context(), name, environment(c, 0).Hub)
	if err != nil {
		return model.Config{}, nil, unfit(err)
	}
	if err := plainFiles(dir); err != nil {
		return model.Config{}, nil, usage(fmt.Errorf("model %s: %w", name, err))
	}
	config, err := families.LoadConfig(dir)
	if err != nil {
		return model.Config{}, nil, err
	}
	set, err := weights.OpenDir(dir)
	return config, set, err
}

func printModel(c *console, m modelJSON) error {
	w := bufio.NewWriter(c.out)
	k := m.Config
	fmt.Fprintf(w, "model       %s\ntype        %s, %d layers\n", m.Model, k.ModelType, k.NumLayers)
	fmt.Fprintf(w, "width       %d, MLP %d, vocabulary %d\n", k.HiddenSize, k.IntermediateSize, k.VocabSize)
	fmt.Fprintf(w, "attention   %d heads of %d, %d key/value heads, at most %d tokens\n", k.NumHeads, k.HeadDim, k.NumKVHeads, k.MaxPositions)
	if k.SlidingWindow > 0 {
		fmt.Fprintf(w, "window      %d tokens\n", k.SlidingWindow)
	}
	if k.TieEmbeddings {
		fmt.Fprintln(w, "embeddings  tied: the head is the embedding")
	}
	if m.Quantised > 0 {
		s := quantised.Scheme(k.Quantization)
		fmt.Fprintf(w, "stored      %d weights in %d bits (%s, double_quant %v)\n", m.Quantised, s.Bits, s.Type, s.DoubleQuant)
	}
	fmt.Fprintf(w, "parameters  %d in %d tensors, %s\n\n", m.Parameters, len(m.Tensors), session.FormatBytes(m.Bytes))
	for _, t := range m.Tensors {
		fmt.Fprintf(w, "%-56s  %-5s %v\n", t.Name, t.DType, t.Shape)
	}
	return w.Flush()
}
