// Package families is the table of model architectures by their model_type.
package families

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/gptoss"
	"github.com/tierlora/tierlora/model/llama"
	"github.com/tierlora/tierlora/model/mixtral"
	"github.com/tierlora/tierlora/model/nn"
)

// Build applies a network to a batch: token ids [M] -> hidden states after the final norm [M,C].
type Build func(n *nn.Net, c model.Config, in nn.Batch) *nn.Value

// Family is an architecture and what its config.json may say.
type Family struct {
	Build   Build
	Dialect model.Dialect
}

// Table names every architecture.
var Table = map[string]Family{
	"gpt_oss":   {gptoss.Build, gptoss.Dialect},
	"llama":     {llama.Build, llama.Llama},
	"mistral":   {llama.Build, llama.Mistral},
	"mixtral":   {mixtral.Build, mixtral.Mixtral},
	"qwen2":     {llama.Build, llama.Qwen2},
	"qwen3_moe": {mixtral.BuildQwen3, mixtral.Qwen3},
}

// For finds the architecture of a configuration.
func For(c model.Config) (Build, error) {
	if f, ok := Table[c.ModelType]; ok {
		return f.Build, nil
	}
	return nil, fmt.Errorf("config.json: model_type %q is not one of %s", c.ModelType, strings.Join(slices.Sorted(maps.Keys(Table)), ", "))
}

// ParseConfig is model.ParseConfig for the families of the table.
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
