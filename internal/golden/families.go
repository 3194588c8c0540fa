package golden

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// FamilyFolders are the folders of testdata with small models of families whose runs other programs made.
var FamilyFolders = []string{"autumn_families", "dialect_experts", "dialects", "experts",
	"first_families", "fused_experts", "gemma", "gemma4",
	"gemma4_experts",
	"gemma4_unified", "hybrids", "idefics3_text", "interleaved", "latent", "linear_attention", "linear_experts",
	"llama_like",
	"ministral3", "more_dialects", "more_families", "mxfp4", "parameter_experts", "phi", "scored_experts",
	"shared_experts", "short_conv", "state_space",
	"state_space_experts", "ungated_experts"}

// FamilyModel is a small model of a family.
type FamilyModel struct{ Folder, Name string }

// FamilyRuns is what transformers, PEFT and bitsandbytes make of a small model.
type FamilyRuns struct {
	Rows []struct {
		IDs    []int32 `json:"input_ids"`
		Labels []int32 `json:"labels"`
		NLL    float64 `json:"nll"` // summed over the trained tokens
	} `json:"rows"`
	Mean  float64      `json:"mean_nll"` // over the rows' trained tokens
	Texts []FamilyText `json:"texts"`
	// Suppressed are texts of a model whose generation_config.json has these suppress_tokens; none of most models.
	Suppressed struct {
		IDs   []int32      `json:"ids"`
		Texts []FamilyText `json:"texts"`
	} `json:"suppressed"`
	BF16 struct { // error of PEFT's own bf16 against fp32 over the curve's rows, one by one, with the adapter NAME.lora
		Logits   float64 `json:"logits"`
		Gradient float64 `json:"gradient"`
		// what is added to the rows' ids, all of them together; none: the rows as they are
		Add []int32 `json:"add"`
		// Of mixtures of experts alone, where a token may be given to another expert: the gradient's over NF4 weights,
		// and that of the draws' losses, relative, in the mean.
		GradientNF4 float64 `json:"gradient_nf4"`
		Curve       float64 `json:"curve"`
	} `json:"bf16"`
	// Clear is, of mixtures of experts, for each row a number to add to its ids, modulo the vocabulary, with which
	// every token's experts lead the next by as much as can be found: a precision finer than bf16 chooses the same
	// experts as fp32.
	Clear struct {
		Floats Clear `json:"floats"`
		NF4    Clear `json:"nf4"` // over weights in NF4
	} `json:"clear"`
	Draws []struct { // of mixtures of experts: the curve again, with a number added to every id, modulo the vocabulary
		Add  int32     `json:"add"`
		Loss []float64 `json:"loss"`
	} `json:"draws"`
	Curve FamilyCurve `json:"curve"` // of PEFT over NF4 weights, from the adapter NAME.lora
	// CurveOfFloats is the same over the weights as they are; none of most models.
	CurveOfFloats FamilyCurve `json:"curve_of_floats"`
}

// FamilyText is a prompt and how it goes on greedily.
type FamilyText struct {
	Prompt []int32 `json:"prompt_ids"`
	New    []int32 `json:"new_ids"`
}

// FamilyCurve is what PEFT's steps gave.
type FamilyCurve struct {
	Loss     []float64 `json:"loss"`
	GradNorm []float64 `json:"grad_norm"`
	LR       []float64 `json:"lr"`
	Trained  []int     `json:"trained_tokens"`
	Rows     [][]int32 `json:"rows"`   // ids of the rows that the steps take in turn
	Labels   [][]int32 `json:"labels"` // of the same
	Batch    int       `json:"batch"`  // rows a step
}

// Clear is a draw and the least lead of a chosen expert's logit over the next in it.
type Clear struct {
	Add  []int32 `json:"add"`
	Lead float64 `json:"lead"`
}

// FamilyModels are the models that have runs.
func FamilyModels(t testing.TB) (all []FamilyModel) {
	t.Helper()
	const ending = ".runs.json"
	for _, folder := range FamilyFolders {
		files, err := filepath.Glob(Path(t, folder+"/*"+ending+"*")) // packed or not
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no runs (%v)", folder, err)
		}
		for _, f := range files {
			name, _, _ := strings.Cut(filepath.Base(f), ending)
			all = append(all, FamilyModel{folder, name})
		}
	}
	return all
}

// Adapter is the folder of the model's adapter, which PEFT made.
func (m FamilyModel) Adapter(t testing.TB) string { return Path(t, m.Folder+"/"+m.Name+".lora") }

// Runs of the model.
func (m FamilyModel) Runs(t testing.TB) (r FamilyRuns) {
	t.Helper()
	JSON(t, Path(t, m.Folder+"/"+m.Name+".runs.json"), &r)
	return r
}

// Dir is a folder with the model's files, as a checkpoint has them.
func (m FamilyModel) Dir(t testing.TB) string {
	t.Helper()
	var weights map[string]string
	JSON(t, Path(t, m.Folder+"/models.json"), &weights)
	dir := t.TempDir()
	files := map[string]string{"config.json": m.Name + ".config.json", "model.safetensors": weights[m.Name] +
		".safetensors", "tokenizer.json": "tokenizer.json"}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := os.WriteFile(filepath.Join(dir, name), ReadFile(t, Path(t, m.Folder+"/"+files[name])),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
