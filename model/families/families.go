// Package families is the table of model architectures by model_type.
package families

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/afmoe"
	"github.com/tierlora/tierlora/model/apertus"
	"github.com/tierlora/tierlora/model/bamba"
	"github.com/tierlora/tierlora/model/cohere"
	"github.com/tierlora/tierlora/model/gemma"
	"github.com/tierlora/tierlora/model/glm4"
	"github.com/tierlora/tierlora/model/gptoss"
	"github.com/tierlora/tierlora/model/granite"
	"github.com/tierlora/tierlora/model/lfm2"
	"github.com/tierlora/tierlora/model/llama"
	"github.com/tierlora/tierlora/model/mixtral"
	"github.com/tierlora/tierlora/model/nemotron"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/model/olmo2"
	"github.com/tierlora/tierlora/model/phi3"
	"github.com/tierlora/tierlora/model/qwen35"
	"github.com/tierlora/tierlora/model/weights"
)

// Build applies a network to a batch: token ids [M] -> hidden states after the final norm [M,C].
type Build func(n *nn.Net, c model.Config, in nn.Batch) *nn.Value

// Family is an architecture and the meaning of its config.json.
type Family struct {
	Build   Build
	Dialect model.Dialect
	// Names returns the network's name of a checkpoint's tensor; nil = the same name. Unused lists patterns
	// (weights.Check) of network names of tensors that the network does not use.
	Names  func(tensor string) string
	Unused []string
	// NextTokens reports that a checkpoint may have a layer for multi-token prediction behind the model's own layers,
	// which the network does not use.
	NextTokens bool
	// ExpertLayers is a part of tensor names that occurs in checkpoints that store experts as linear layers, and not in
	// those that store them as one parameter.
	ExpertLayers string
	// Experts holds the names of experts' tensors if a checkpoint may store a layer's experts in one tensor; nil = it
	// never does.
	Experts *mixtral.Names
	// WholeExperts reports that transformers reads a layer's experts only as one tensor.
	WholeExperts bool
	// PEFTRenames reports that PEFT under transformers 5 treats target_modules with the names of experts' layers as
	// experts, whatever layer they name.
	PEFTRenames bool
}

// Table maps model_type to its family.
var Table = map[string]Family{
	"afmoe":   {Build: afmoe.Build, Dialect: afmoe.Dialect, Experts: &afmoe.Names, PEFTRenames: true},
	"apertus": {Build: apertus.Build, Dialect: apertus.Dialect},
	"arcee":   {Build: llama.Build, Dialect: llama.Arcee},
	"bamba":   {Build: bamba.Build, Dialect: bamba.Dialect},
	"cohere":  {Build: cohere.Build, Dialect: cohere.Cohere},
	"cohere2": {Build: cohere.Build, Dialect: cohere.Cohere2},
	"cwm":     {Build: llama.Build, Dialect: llama.CWM},
	"deepseek_v2": {Build: mixtral.BuildScored, Dialect: mixtral.DeepSeekV2, Experts: &mixtral.Scored,
		PEFTRenames: true},
	"deepseek_v3": {Build: mixtral.BuildScored, Dialect: mixtral.DeepSeekV3, NextTokens: true,
		Experts: &mixtral.Scored, PEFTRenames: true},
	"ernie4_5": {Build: llama.Build, Dialect: llama.Ernie},
	"ernie4_5_moe": {Build: mixtral.BuildErnie, Dialect: mixtral.Ernie, Unused: []string{"model.mtp_*"},
		Experts: &mixtral.ErnieNames, PEFTRenames: true},
	"exaone4":     {Build: olmo2.Build, Dialect: olmo2.Exaone4},
	"falcon_h1":   {Build: bamba.Build, Dialect: bamba.FalconH1},
	"gemma":       {Build: gemma.Build1, Dialect: gemma.Gemma},
	"gemma2":      {Build: gemma.Build2, Dialect: gemma.Gemma2},
	"gemma3":      {Build: gemma.Build3, Dialect: gemma.Gemma3Multimodal, Names: withImages, Unused: ofImages},
	"gemma3_text": {Build: gemma.Build3, Dialect: gemma.Gemma3},
	"gemma4": {Build: gemma.Build4, Dialect: gemma.Gemma4Multimodal, Unused: gemma.UnusedOf4,
		Experts: &mixtral.Gemma, WholeExperts: true},
	"gemma4_text":         {Build: gemma.Build4, Dialect: gemma.Gemma4, Experts: &mixtral.Gemma, WholeExperts: true},
	"gemma4_unified":      {Build: gemma.Build4, Dialect: gemma.Gemma4UnifiedMultimodal, Unused: gemma.UnusedOf4},
	"gemma4_unified_text": {Build: gemma.Build4, Dialect: gemma.Gemma4Unified},
	"glm":                 {Build: glm4.BuildGLM, Dialect: glm4.GLM},
	"glm4":                {Build: glm4.Build, Dialect: glm4.Dialect},
	"glm4_moe": {Build: mixtral.BuildScored, Dialect: mixtral.GLM, NextTokens: true,
		Experts: &mixtral.Scored, PEFTRenames: true},
	"glm4_moe_lite": {Build: mixtral.BuildScored, Dialect: mixtral.GLMLite, NextTokens: true,
		Experts: &mixtral.Scored, PEFTRenames: true},
	"gpt_oss": {Build: gptoss.Build, Dialect: gptoss.Dialect, Names: gptoss.Name,
		ExpertLayers: gptoss.ExpertLayers},
	"granite": {Build: llama.Build, Dialect: llama.Granite},
	"granitemoehybrid": {Build: granite.Build, Dialect: granite.Hybrid, Experts: &granite.Names,
		WholeExperts: true},
	"hunyuan_v1_dense": {Build: llama.Build, Dialect: llama.HunYuan},
	"idefics3":         {Build: llama.Build, Dialect: llama.Idefics3, Unused: llama.Idefics3Unused},
	"lfm2":             {Build: lfm2.Build, Dialect: lfm2.Dialect},
	"lfm2_moe":         {Build: lfm2.Build, Dialect: lfm2.Mixture, Experts: &lfm2.Names},
	"llama":            {Build: llama.Build, Dialect: llama.Llama},
	"minimax_m2": {Build: mixtral.BuildMiniMax, Dialect: mixtral.MiniMax, Experts: &mixtral.MiniMaxNames,
		PEFTRenames: true},
	"ministral":  {Build: llama.Build, Dialect: llama.Ministral},
	"ministral3": {Build: llama.Build, Dialect: llama.Ministral3},
	"mistral":    {Build: llama.Build, Dialect: llama.Mistral},
	"mistral3":   {Build: llama.Build, Dialect: llama.Mistral3, Names: withImages, Unused: ofImages},
	"mixtral":    {Build: mixtral.Build, Dialect: mixtral.Mixtral, Experts: &mixtral.Own, PEFTRenames: true},
	"nemotron_h": {Build: nemotron.Build, Dialect: nemotron.Dialect, Names: nemotron.Name,
		Unused: nemotron.Unused, Experts: &nemotron.Names},
	"olmo2":     {Build: olmo2.Build, Dialect: olmo2.Dialect},
	"olmo3":     {Build: olmo2.Build, Dialect: olmo2.Olmo3},
	"phi3":      {Build: phi3.Build, Dialect: phi3.Dialect},
	"qwen2":     {Build: llama.Build, Dialect: llama.Qwen2},
	"qwen2_moe": {Build: mixtral.BuildQwen, Dialect: mixtral.Qwen2, Experts: &mixtral.Qwen},
	"qwen3":     {Build: llama.Build, Dialect: llama.Qwen3},
	"qwen3_5":   {Build: qwen35.Build, Dialect: qwen35.Folder, Unused: qwen35.Unused},
	"qwen3_5_moe": {Build: qwen35.Build, Dialect: qwen35.MixtureFolder, Unused: qwen35.Unused,
		Experts: &mixtral.Qwen, WholeExperts: true},
	"qwen3_5_moe_text": {Build: qwen35.Build, Dialect: qwen35.MixtureText, Unused: qwen35.Unused,
		Experts: &mixtral.Qwen, WholeExperts: true},
	"qwen3_5_text": {Build: qwen35.Build, Dialect: qwen35.Text, Unused: qwen35.Unused},
	"qwen3_moe":    {Build: mixtral.BuildQwen, Dialect: mixtral.Qwen3, Experts: &mixtral.Qwen, PEFTRenames: true},
	"qwen3_next": {Build: qwen35.BuildNext, Dialect: qwen35.Next, Unused: []string{"mtp.*"}, Experts: &mixtral.Qwen,
		PEFTRenames: true},
	"qwen3_vl": {Build: llama.Build, Dialect: llama.Qwen3VL, Unused: llama.Qwen3VLUnused},
	"seed_oss": {Build: llama.Build, Dialect: llama.SeedOSS},
	"smollm3":  {Build: llama.Build, Dialect: llama.SmolLM3},
	"smolvlm":  {Build: llama.Build, Dialect: llama.SmolVLM, Unused: llama.Idefics3Unused},
}

// For returns the architecture of a configuration.
func For(c model.Config) (Build, error) {
	if f, ok := Table[c.ModelType]; ok {
		return f.Build, nil
	}
	return nil, fmt.Errorf("config.json: model_type %q is not one of %s", c.ModelType,
		strings.Join(slices.Sorted(maps.Keys(Table)), ", "))
}

// ParseConfig does what model.ParseConfig does for the families of Table.
func ParseConfig(data []byte) (model.Config, error) {
	dialects := make(map[string]model.Dialect, len(Table))
	for name, f := range Table {
		dialects[name] = f.Dialect
	}
	return model.ParseConfig(data, dialects)
}

// LoadConfig reads config.json in dir.
func LoadConfig(dir string) (model.Config, error) {
	path := filepath.Join(dir, "config.json")
	data, err := regular.ReadFile(path)
	if err != nil {
		return model.Config{}, fmt.Errorf("read model config: %w", err)
	}
	c, err := ParseConfig(data)
	if err != nil {
		return model.Config{}, fmt.Errorf("read %s: %w", path, err)
	}
	return c, nil
}

// Fit returns c completed by what only a checkpoint's tensors show, and renames the tensors to the names of c's
// network.
func Fit(c model.Config, w *weights.Set) (model.Config, error) {
	c = Tie(c, w)
	return c, Rename(c, w)
}

// Rename renames a checkpoint's tensors to the names of c's network, and splits experts that are stored as one tensor.
func Rename(c model.Config, w *weights.Set) error {
	if names := Table[c.ModelType].Names; names != nil {
		if err := w.Rename(names); err != nil {
			return err
		}
	}
	return splitExperts(c, w)
}
