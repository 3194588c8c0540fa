package train

import (
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/keys"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/text/tokenizer"
	"github.com/tierlora/tierlora/train/fit"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/step"
	"github.com/tierlora/tierlora/train/track"
)

// Spec is a run's whole configuration, as the YAML file has it. Each section belongs to the package that
// reads it. The comments of the fields are the reference of the keys (docs/CONFIG.md).
type Spec struct {
	// BaseModel is the model to fine-tune: a folder, a name such as org/name or org/name@revision of a model in the
	// Hugging Face cache, or embedded:stories260K.
	BaseModel string `yaml:"base_model" form:"path" resume:"compared"`
	// Adapter is the method: lora keeps the base weights as they are, qlora quantises them to 4 bits. dora and qdora
	// are the same with a trained magnitude for each row of an adapted weight (DoRA). ia3, lokr, miss, oft and vera are
	// further methods, each with a section of its name; with a q before the name they train over base weights in 4
	// bits. full trains the base weights themselves, and writes a whole model.
	Adapter string `yaml:"adapter" default:"lora" resume:"fixed"`
	// Task is what the model is trained for. causal predicts the next token. The others train a head or vectors in
	// place of the vocabulary's head: sequence_classification gives a text scores (training.objective classification or
	// reward), token_classification each token, embedding makes a vector of a text (contrastive), and reranker scores
	// how well two texts belong together (rerank).
	Task string `yaml:"task" default:"causal" resume:"fixed"`
	// Sections are those of adapter methods.
	adapter.Sections `yaml:",inline"`
	// Quantization is how qlora stores the base weights. Without it qlora takes the defaults, or keeps weights that
	// are quantised.
	Quantization *quant.Config `yaml:"quantization,omitempty"`
	// Tokenizer is which tokens are added to the base model's tokenizer.
	Tokenizer tokenizer.Additions `yaml:"tokenizer,omitempty"`
	// Dataset is where the rows come from and how they become token sequences.
	Dataset dataset.Config `yaml:"dataset"`
	// Training is how long and how to train, and when to evaluate and save.
	Training   Config           `yaml:"training"`
	Objectives objective.Config `yaml:",inline"` // a section for each objective that has settings
	// Tracking is the configuration of the trackers that training.report_to lists.
	Tracking track.Config `yaml:"tracking,omitempty"`
	// Expect is what must hold at the end of the run; if anything does not, the exit code is 1.
	Expect Expect `yaml:"expect,omitempty"`
	// Seed is the seed of all randomness: initial adapter weights, order of the rows, validation split, dropout.
	Seed uint64 `yaml:"seed" default:"42" range:"[0,2^64-1]" resume:"fixed"`
	// OutputDir is the folder for the adapter, checkpoints and metrics. A relative path starts at the working
	// directory.
	OutputDir string `yaml:"output_dir" form:"path" resume:"free"`
	// Device is where the run trains. auto takes an NVIDIA GPU if the program supports GPUs and the machine has one,
	// otherwise the CPU.
	Device string `yaml:"device" default:"auto" resume:"free"`
	// Devices selects the devices of this machine to train on: a number, all, or a list of GPUs such as [0, 2]. The
	// micro-batches of each step are divided among them. N devices write the same adapter, byte for byte, as one
	// device with N times the training.gradient_accumulation_steps. On a CPU the number is that of ranks, to try a
	// configuration out.
	Devices string `yaml:"devices" default:"1" form:"devices" resume:"free"`
	// VRAM is the maximum memory that the run may hold on each device, such as 8GiB. Empty means all free memory.
	VRAM string `yaml:"vram,omitempty" form:"size" resume:"free"`
}

// DefaultSpec returns a configuration with every key at its default.
func DefaultSpec() (s Spec) {
	keys.SetDefaults(&s)
	return s
}

// Choices returns the values of keys that name an entry of a table.
func (Spec) Choices() map[string][]string {
	return map[string][]string{"adapter": adapter.Names(), "device": graph.DeviceNames, "task": taskNames()}
}

// AdapterConfig returns the section of the run's adapter method, and its task.
func (s Spec) AdapterConfig() adapter.Config {
	c := s.Sections.Config(s.Adapter)
	c.Task = s.task()
	return c
}

// Session returns the options that the run opens its session with.
func (s Spec) Session() session.Options {
	return session.Options{Model: s.BaseModel, Device: s.Device, Precision: s.Training.Numbers(), Adapter: s.Adapter,
		AdapterConfig: s.AdapterConfig(), Seed: s.Seed, Quantization: s.Quantization, Tokens: s.Tokenizer}
}

// Evaluation returns the options to evaluate the run's validation rows, with the adapter of a folder unless adapterDir
// is empty. An objective that learns from preferences or targets is evaluated with its own loss and numbers, over the
// batches and against the reference that an evaluation of the run has. Objectives of single sequences are evaluated
// with the model's own loss, so that their runs can be compared.
func (s Spec) Evaluation(adapterDir string) infer.EvalOptions {
	o := infer.EvalOptions{Options: s.Session(), AdapterDir: adapterDir, Data: s.Dataset, Seed: s.Seed,
		BatchSize: s.Training.BatchSize}
	if objective.Objectives[s.Training.Objective] == nil || !objective.Prefers(s.Objective()) {
		return o
	}
	o.Objective, o.ObjectiveName, o.Data = s.Objective(), s.Training.Objective, s.Data()
	o.Reference = s.referenceAdapter()
	o.Loader = func(on *session.Session, set *dataset.Set) (*dataset.Loader, error) {
		return evaluationRows(s, on, set)
	}
	return o
}

// evaluationRows returns the loader of a set's validation rows that an evaluation of the run has on one device.
func evaluationRows(s Spec, on *session.Session, set *dataset.Set) (*dataset.Loader, error) {
	if _, err := sharePrompts(s, set, sharingLayers(on)); err != nil {
		return nil, err
	}
	b, err := firstRank(set, s, on.Base.Config.HiddenSize)
	if err != nil {
		return nil, err
	}
	defer b.loader.Close()
	return set.ValLoader(s.Training.BatchSize, slices.Max(b.loader.Shape().Budgets))
}

// Objective returns what the run minimises: the objective that training.objective names, with the settings of its
// section. Everything that plans, reads rows, trains or evaluates for the run takes it from here. Validate has found
// it.
func (s Spec) Objective() objective.Objective {
	o := objective.Of(s.Training.Objective, s.Objectives)
	if s.Dataset.Weights {
		o = objective.Weighted(o)
	}
	return o
}

// Data returns the section of the run's data set as the run reads it: its objective decides which rows are preferences
// and what their sequences are.
func (s Spec) Data() dataset.Config {
	data := objective.Reading(s.Objective(), s.Dataset, s.Training.BatchSize)
	_, data.Prompts = samplesOf(s)
	return data
}

// ValidateBatches returns what is wrong with the run's micro-batches for its objective.
func (s Spec) ValidateBatches() (problems []error) {
	if objective.Objectives[s.Training.Objective] == nil {
		return nil // the check of the key itself reports it
	}
	o := s.Objective()
	if err := objective.CheckBatch(o, s.Training.BatchSize); err != nil {
		problems = append(problems, err)
	}
	if term := objective.BatchTerm(o); term != "" && s.Training.OnOOM == fit.OnOOMShrink {
		problems = append(problems, fmt.Errorf("training.on_oom: shrink makes smaller micro-batches, and in training."+
			"objective: %s %s of each micro-batch: a step would have another loss; set it to stop",
			s.Training.Objective, term))
	}
	return problems
}

// Step returns the options that the training step is planned from.
func (s Spec) Step() step.Options { return s.Training.Step(s.Objective()) }
