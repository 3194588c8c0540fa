package export

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// Options say what is exported, and where to.
type Options struct {
	Format    string
	Model     string // DIR, hub name or embedded:NAME
	Adapter   string // DIR; "" = none
	Out       string
	DType     string // "" = the format's
	Overwrite bool   // replace a file that is there
	Separate  bool   // the adapter stays a file of its own beside the base model
	// Trained is how the adapter's run stored the weights that it trained over, to which it is added then, as a merge
	// does; nil = as they are.
	Trained *quant.Config
	Check   []string // texts whose logits are compared where an adapter becomes part of the weights; empty = none
	Own     OwnRows  // rows of the adapter's run, over which they are compared too
}

// Report is what was written.
type Report struct {
	Format  string         `json:"format"`
	Model   string         `json:"model"`
	Adapter string         `json:"adapter,omitempty"`
	Output  string         `json:"output"`
	DType   string         `json:"dtype"`
	Tensors int            `json:"tensors"`
	Bytes   int64          `json:"bytes"` // of all files
	Types   []StoredTensor `json:"types"` // by how tensors are stored
	Notes   []string       `json:"notes"` // where other programs differ
	// Rounding is what the file's types leave of the adapter's update, over a sample of the rows of each adapted
	// tensor; nil = no adapter became part of the weights.
	Rounding *Rounding `json:"rounding,omitempty"`
	// Drift is how far the weights that the file stands for are from base and adapter, computed in float32; nil = it
	// was not asked for, or cannot be computed, which a note says.
	Drift *Drift   `json:"drift,omitempty"`
	Files []string `json:"files,omitempty"`
}

// StoredTensor is what the tensors of a type take.
type StoredTensor struct {
	Type    string  `json:"type"`
	Tensors int     `json:"tensors"`
	Bytes   int64   `json:"bytes"`
	Error   float64 `json:"error"` // root of the mean square error, as a share of the numbers' root mean square
}

// Format is a kind of file that other programs load.
type Format struct {
	For     string   // the programs, and what they load
	Out     string   // what --out names: FILE or DIR
	DTypes  []string // that Options.DType may name; the first is its default
	Adapter bool     // an adapter is what is exported
	Merges  bool     // an adapter may be named, and becomes part of the weights
	Beside  bool     // Separate is known
	Run     func(ctx context.Context, o Options, env session.Env) (Report, error)
}

// Formats are what Export writes.
var Formats = map[string]Format{
	"gguf": {For: "llama.cpp, LM Studio, Ollama and other readers of GGUF: a whole model with the adapter merged in",
		Out:    "FILE",
		DTypes: []string{"f16", "bf16", "f32", "q8_0", "q4_0", "q4_k_m"}, Merges: true, Run: ggufModel},
	"gguf-lora": {For: "llama.cpp (--lora): the adapter alone, beside a GGUF file of its base model", Out: "FILE",
		DTypes: []string{"f16", "bf16", "f32"}, Adapter: true, Run: ggufLoRA},
	"mlx": {For: "mlx-lm (--adapter-path): the adapter alone", Out: "DIR", DTypes: adapterTypes, Adapter: true,
		Run: mlxAdapter},
	"peft": {For: "PEFT and programs that do not know rank patterns: the adapter alone, with one rank and scale",
		Out: "DIR", DTypes: adapterTypes,
		Adapter: true, Run: peftAdapter},
	"vllm": {For: "vLLM (--lora-modules): the adapter alone", Out: "DIR", DTypes: adapterTypes, Adapter: true,
		Run: vllmAdapter},
	"ollama": {For: "Ollama (ollama create): a folder with a GGUF file and a Modelfile", Out: "DIR",
		DTypes: []string{"f16", "bf16", "f32", "q8_0", "q4_0", "q4_k_m"}, Merges: true, Beside: true, Run: ollama},
}

// Names lists the formats.
func Names() []string { return slices.Sorted(maps.Keys(Formats)) }

// Check refuses options that no run could follow.
func Check(o Options) error {
	f, ok := Formats[o.Format]
	switch {
	case o.Format == "":
		return fmt.Errorf("name the format: --format %s; trainer export --help says what each is for",
			strings.Join(Names(), "|"))
	case !ok:
		return fmt.Errorf("--format %q is not one of %s", o.Format, strings.Join(Names(), ", "))
	case o.Model == "" && o.Adapter == "": // an adapter names its model
		return fmt.Errorf("name the model: --model DIR")
	case o.Out == "":
		return fmt.Errorf("name what is written: --out %s", f.Out)
	case o.DType != "" && !slices.Contains(f.DTypes, o.DType):
		return fmt.Errorf("--dtype %q: %s takes %s", o.DType, o.Format, strings.Join(f.DTypes, ", "))
	case f.Adapter && o.Adapter == "":
		return fmt.Errorf("--format %s exports an adapter: name it with --adapter DIR", o.Format)
	case !f.Adapter && !f.Merges && o.Adapter != "":
		return fmt.Errorf("--format %s takes no adapter", o.Format)
	case o.Separate && !f.Beside:
		return fmt.Errorf("--format %s has no place for a separate adapter: leave --separate-adapter out", o.Format)
	case o.Separate && o.Adapter == "":
		return fmt.Errorf("--separate-adapter needs an adapter: name it with --adapter DIR")
	}
	return nil
}

// checkWrites refuses the adapter of a folder whose task writes no text.
func checkWrites(dir string) error {
	saved, err := adapter.Open(dir)
	if err != nil {
		return err
	}
	err = saved.Config.Task.CheckWrites()
	if saved.Config.Task.Type == adapter.FeatureExtraction {
		err = fmt.Errorf("the adapter has task_type %s: merge it (trainer merge --adapter %s --out FOLDER) and "+
			"export the "+
			"folder as gguf (--model FOLDER)", saved.Config.Task.Type, dir)
	}
	return errors.Join(err, saved.Close())
}

// Export writes a model or an adapter in a format. What is written is read back and compared; a run that fails or is
// stopped leaves nothing.
func Export(ctx context.Context, o Options, env session.Env) (Report, error) {
	if err := Check(o); err != nil {
		return Report{}, err
	}
	if o.Model == "" {
		return Report{}, errors.New("no model is given")
	}
	if o.Adapter != "" && o.Format != "peft" { // the other programs write text
		if err := checkWrites(o.Adapter); err != nil {
			return Report{}, fmt.Errorf("export %s as %s to %s: %w", o.Model, o.Format, o.Out, err)
		}
	}
	f := Formats[o.Format]
	if o.DType == "" {
		o.DType = f.DTypes[0]
	}
	r, err := f.Run(ctx, o, env)
	if err != nil {
		return Report{}, fmt.Errorf("export %s as %s to %s: %w", o.Model, o.Format, o.Out, err)
	}
	r.Format, r.Model, r.Adapter, r.Output, r.DType = o.Format, o.Model, o.Adapter, o.Out, o.DType
	if r.Notes == nil {
		r.Notes = []string{}
	}
	return r, nil
}
