package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/internal/filename"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/hub"
	"github.com/tierlora/tierlora/model/quantised"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/tokenizer"
)

type modelJSON struct {
	Model      string       `json:"model"`
	Family     string       `json:"family"`
	Config     model.Config `json:"config"`
	Windows    []windowJSON `json:"windows"` // groups of layers with the same attention window in tokens
	Parameters int64        `json:"parameters"`
	// Active is the number of parameters that take part in a token's prediction, less than all for a mixture of
	// experts. It includes the whole embedding table, unless the head has its own table.
	Active     int64 `json:"active_parameters"`
	ActiveLess int64 `json:"active_parameters_less_embeddings"`
	Bytes      int64 `json:"bytes"` // as stored; 0 if the folder has no weights
	whole      int64 // bytes of all tensors, present or not
	used       int   // tensors that the network reads; a quantised weight counts as one
	// Weights reports whether the folder has the weights; otherwise parameters and tensors follow from config.json.
	Weights   bool           `json:"weights"`
	Storage   map[string]int `json:"storage"`   // number of tensors of each type
	Quantised int            `json:"quantised"` // weights that are stored quantised
	// Dequantised counts the weights that are stored quantised and dequantised while they are read.
	Dequantised int      `json:"dequantised,omitempty"`
	AllLinear   []string `json:"all_linear"`
	// values for lora.target_parameters that the model supports
	TargetParameters []string        `json:"target_parameters,omitempty"`
	Tokenizer        *vocabularyJSON `json:"tokenizer,omitempty"`         // absent if the folder has none
	Problem          string          `json:"tokenizer_problem,omitempty"` // why the tokenizer cannot be read
	Tensors          []tensorJSON    `json:"tensors"`
}

type tensorJSON struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	Bytes int    `json:"bytes"`
}

// windowJSON is the attention window of a group of layers; 0 = all earlier tokens.
type windowJSON struct {
	Window int `json:"window"`
	Layers int `json:"layers"`
}

func newInspectModel(c *console) *cobra.Command {
	var name string
	var asJSON, noTensors bool
	cmd := &cobra.Command{
		Use:   "model --model DIR",
		Short: "Print a model's family, sizes, special tokens, adapter targets and tensors",
		Long: `Print a model's family, sizes, context length, special tokens, chat template, storage types, the layers that all-linear
means, and its tensors; for a mixture of experts also the parameters that are active per token. DIR is a model folder, a
hub name, or embedded:NAME.

The folder may hold config.json alone: then parameters and tensors follow from it.`,
		Example: `  trainer inspect model --model embedded:stories260K
  trainer inspect model --model ./SmolLM2-135M --json`,
		Args: func(cmd *cobra.Command, args []string) error { // the model as an argument is the old form
			switch {
			case len(args) > 1 || len(args) == 1 && name != "":
				return usage(fmt.Errorf("%s takes one model, --model DIR; got %d", cmd.CommandPath(), len(args)+
					min(len(name), 1)))
			case len(args) == 1:
				name = filename.ExpandHome(args[0])
			case name == "":
				return usage(fmt.Errorf("%s needs --model DIR: a model folder, hub name or embedded:NAME",
					cmd.CommandPath()))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			config, set, folder, err := openModel(cmd, c, name)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, set.Close()) }()
			answer, err := describeModel(name, config, set, folder)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.out, answer)
			}
			return printModel(c, answer, !noTensors)
		},
	}
	pathVar(cmd, &name, "model", "", "model `DIR`, hub name, or embedded:NAME")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	cmd.Flags().BoolVar(&noTensors, "no-tensors", false, "leave out the list of tensors")
	c.downloadFlag(cmd)
	return cmd
}

// openModel reads a model's configuration and opens its weights. For a folder without weights the set has names and
// shapes only.
func openModel(cmd *cobra.Command, c *console, name string) (model.Config, *weights.Set, fs.FS, error) {
	if short, ok := strings.CutPrefix(name, session.EmbeddedPrefix); ok {
		fsys, err := configs.Model(short)
		if err != nil {
			return model.Config{}, nil, nil, usage(err)
		}
		raw, err := fs.ReadFile(fsys, "config.json")
		if err != nil {
			return model.Config{}, nil, nil, fmt.Errorf("read model config: %w", err)
		}
		config, err := families.ParseConfig(raw)
		if err != nil {
			return model.Config{}, nil, nil, err
		}
		set, err := weights.OpenFS(fsys, ".")
		return config, set, fsys, err
	}
	dir, err := hub.Resolve(cmd.Context(), name, environment(c, 0).Hub)
	if err != nil {
		return model.Config{}, nil, nil, unfit(err)
	}
	if err := plainFiles(dir); err != nil {
		return model.Config{}, nil, nil, usage(fmt.Errorf("model %s: %w", name, err))
	}
	config, err := families.LoadConfig(dir)
	if err != nil {
		return model.Config{}, nil, nil, err
	}
	var set *weights.Set
	if weights.HasNone(dir) {
		set, err = session.DeclaredWeights(config)
	} else {
		if set, err = weights.OpenDir(dir); err == nil {
			config = families.Tie(config, set)
		}
	}
	return config, set, os.DirFS(dir), err
}

// describeModel collects the facts about a model.
func describeModel(name string, config model.Config, set *weights.Set, folder fs.FS) (modelJSON, error) {
	answer := modelJSON{Model: name, Family: config.ModelType, Config: config, Tensors: []tensorJSON{},
		Windows: windows(config), Storage: map[string]int{}}
	for _, name := range set.Names() {
		t, _ := set.Tensor(name)
		answer.Tensors = append(answer.Tensors, tensorJSON{name, t.DType.String(), t.Shape, len(t.Data)})
		answer.Bytes += int64(len(t.Data))
		answer.Storage[t.DType.String()]++
	}
	answer.Weights = answer.Bytes > 0
	known, err := session.DeclaredCheckpoint(config, set)
	if answer.Weights {
		known, err = quantised.Open(set, config.Quantization)
	}
	if err != nil {
		return answer, fmt.Errorf("model %s: %w", answer.Model, err)
	}
	for _, name := range known.Names() {
		answer.whole += known.Size(name)
	}
	answer.Quantised, answer.Dequantised = known.Quantised(), known.Dequantised()
	read := networkTensors{known, slices.DeleteFunc(slices.Clone(known.Names()), func(name string) bool {
		return !families.ReadsTensor(config, name)
	})}
	answer.used = len(read.names)
	counted := session.CountParameters(config, read)
	answer.Parameters, answer.Active, answer.ActiveLess = counted.All, counted.Active, counted.ActiveLessTable
	if answer.AllLinear, answer.TargetParameters, err = session.TargetNames(config); err != nil {
		return answer, err
	}
	if answer.Tokenizer, err = describeTokens(folder); err != nil {
		answer.Problem = err.Error()
	}
	return answer, nil
}

// networkTensors is the set of tensors that a network reads from a checkpoint.
type networkTensors struct {
	*quantised.Checkpoint
	names []string
}

func (t networkTensors) Names() []string { return t.names }

// windows groups the layers by their attention window, the widest first.
func windows(c model.Config) []windowJSON {
	layers := map[int]int{}
	for i := range c.NumLayers {
		layers[c.Window(i)]++
	}
	var out []windowJSON
	for _, w := range slices.Sorted(maps.Keys(layers)) {
		out = append(out, windowJSON{w, layers[w]})
	}
	return out
}

func printModel(c *console, m modelJSON, tensors bool) error {
	w := bufio.NewWriter(c.out)
	k := m.Config
	fmt.Fprintf(w, "model       %s\nfamily      %s, %d layers\n", m.Model, m.Family, k.NumLayers)
	fmt.Fprintf(w, "width       %d, MLP %d, vocabulary %d\n", k.HiddenSize, k.IntermediateSize, k.VocabSize)
	fmt.Fprintf(w, "attention   %d heads of %d, %d key/value heads\n", k.NumHeads, k.HeadDim, k.NumKVHeads)
	if g := k.Gemma4; g.FullHeadDim > 0 {
		fmt.Fprintf(w, "full layers %d heads of %d, %d key/value heads\n", k.NumHeads, g.FullHeadDim, g.FullKVHeads)
	}
	for _, g := range m.Windows {
		if g.Window > 0 {
			fmt.Fprintf(w, "window      %d tokens in %d of %d layers\n", g.Window, g.Layers, k.NumLayers)
		}
	}
	fmt.Fprintf(w, "context     at most %d tokens\n", k.MaxPositions)
	if k.TieEmbeddings {
		fmt.Fprintln(w, "embeddings  tied: the head is the embedding")
	}
	switch {
	case session.ReadsImages(k.ModelType):
		fmt.Fprintln(w, "images      an image tower computes their embeddings; it stays frozen")
	case k.Multimodal:
		fmt.Fprintln(w, "images      the tensors for images are left out: the language model alone is used")
	}
	if m.Quantised > 0 {
		s := quantised.Scheme(k.Quantization)
		fmt.Fprintf(w, "stored      %d weights in %d bits (%s, double_quant %v)%s\n", m.Quantised, s.Bits, s.Type,
			s.DoubleQuant, computed(k.Quantization))
	}
	if m.Dequantised > 0 {
		fmt.Fprintf(w, "stored      %d weights quantised (%s), which are dequantised while they are read\n", m.Dequantised,
			k.Quantization.Method)
	}
	fmt.Fprintf(w, "parameters  %d in %d tensors", m.Parameters, m.used)
	if m.used < len(m.Tensors) {
		fmt.Fprintf(w, " of the folder's %d", len(m.Tensors))
	}
	if m.Weights {
		fmt.Fprintf(w, ", %s, stored as %s\n", session.FormatBytes(m.Bytes), storage(m.Storage))
	} else {
		fmt.Fprintf(w, ", %s; the folder holds no weights: they follow from config.json\n",
			session.FormatBytes(m.whole))
	}
	if k.Experts > 0 {
		fmt.Fprintf(w, "active      %d for a token, which goes through %d of %d experts", m.Active,
			k.ExpertsPerToken, k.Experts)
		if m.ActiveLess != m.Active {
			fmt.Fprintf(w, "; %d without the table of embeddings", m.ActiveLess)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "all-linear  %s\n", strings.Join(m.AllLinear, ", "))
	if m.TargetParameters != nil {
		fmt.Fprintf(w, "experts     by target_parameters: %s\n", strings.Join(m.TargetParameters, ", "))
	}
	if m.Problem != "" {
		fmt.Fprintf(w, "tokens      %s\n", m.Problem)
	} else {
		m.Tokenizer.print(w)
	}
	if tensors {
		fmt.Fprintln(w)
		for _, t := range m.Tensors {
			fmt.Fprintf(w, "%-56s  %-5s %v\n", t.Name, t.DType, t.Shape)
		}
	}
	return w.Flush()
}

// computed describes the compute type that a 4-bit folder was made for.
func computed(q *model.Quantization) string {
	if q.Compute == "" {
		return ""
	}
	return fmt.Sprintf("; its bnb_4bit_compute_dtype is %s, a run's training.precision here", q.Compute)
}

// storage lists the types of tensors, the most frequent first.
func storage(types map[string]int) string {
	names := slices.SortedFunc(maps.Keys(types), func(a, b string) int {
		if types[a] != types[b] {
			return types[b] - types[a]
		}
		return strings.Compare(a, b)
	})
	if len(names) == 1 {
		return names[0]
	}
	var parts []string
	for _, n := range names {
		parts = append(parts, fmt.Sprintf("%s (%d tensors)", n, types[n]))
	}
	return strings.Join(parts, ", ")
}

// vocabularyJSON describes a model's tokenizer.
type vocabularyJSON struct {
	Tokens    int              `json:"tokens"` // largest token id plus one
	BOS       *namedTokenJSON  `json:"bos"`    // null = none
	EOS       *namedTokenJSON  `json:"eos"`
	PAD       *namedTokenJSON  `json:"pad"`
	AddsBOS   bool             `json:"adds_bos"`
	Stops     []namedTokenJSON `json:"stops"`     // the stop tokens of generation_config.json
	Templates []templateRef    `json:"templates"` // chat templates of the model's files; empty = none
}

type namedTokenJSON struct {
	ID    int32  `json:"id"`
	Token string `json:"token"`
}

type templateRef struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
}

// describeTokens reads the tokenizer in a model's folder, or returns nil if there is none.
func describeTokens(folder fs.FS) (*vocabularyJSON, error) {
	tok, err := tokenizer.LoadFS(folder, ".")
	if errors.Is(err, tokenizer.ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	named := func(id int32, ok bool) *namedTokenJSON {
		if !ok {
			return nil
		}
		text, _ := tok.Token(id)
		return &namedTokenJSON{id, text}
	}
	t := &vocabularyJSON{
		Tokens: tok.VocabSize(), BOS: named(tok.BOS()), EOS: named(tok.EOS()), PAD: named(tok.PAD()),
		AddsBOS: tok.AddsBOS(),
		Stops:   []namedTokenJSON{}, Templates: []templateRef{},
	}
	found, err := chat.Find(folder)
	if err != nil {
		return nil, err
	}
	for _, id := range found.Stops {
		t.Stops = append(t.Stops, *named(id, true))
	}
	for _, name := range found.Names() {
		t.Templates = append(t.Templates, templateRef{name, len(found.Templates[name])})
	}
	return t, nil
}

func (t *vocabularyJSON) print(w io.Writer) {
	if t == nil {
		fmt.Fprintln(w, "tokens      the folder holds no tokenizer")
		return
	}
	text := func(x *namedTokenJSON) string {
		if x == nil {
			return "none"
		}
		return fmt.Sprintf("%q (%d)", x.Token, x.ID)
	}
	begins := ""
	if t.AddsBOS {
		begins = ", put before each text"
	}
	fmt.Fprintf(w, "tokens      %d; BOS %s%s; EOS %s; PAD %s\n", t.Tokens, text(t.BOS), begins,
		text(t.EOS), text(t.PAD))
	if len(t.Stops) > 0 {
		var stops []string
		for _, s := range t.Stops {
			stops = append(stops, text(&s))
		}
		fmt.Fprintf(w, "stops       %s\n", strings.Join(stops, ", "))
	}
	if len(t.Templates) == 0 {
		fmt.Fprintln(w, "template    none")
		return
	}
	var names []string
	for _, n := range t.Templates {
		names = append(names, n.Name+", "+strconv.Itoa(n.Bytes)+" bytes")
	}
	fmt.Fprintf(w, "template    %s (inspect template --model tells what it does)\n", strings.Join(names, "; "))
}
