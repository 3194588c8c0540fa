// Package families is the table of model architectures by their model_type.
package families

import (
	"fmt"
	"sort"
	"strings"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/llama"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/model/qwen2"
)

// Build applies a network to a batch: token ids [M] -> hidden states after the final norm [M,C].
type Build func(n *nn.Net, c model.Config, in nn.Batch) *nn.Value

// Table names every architecture. Mistral is Llama with a sliding window, which is the configuration's.
var Table = map[string]Build{
	"llama":   llama.Build,
	"mistral": llama.Build,
	"qwen2":   qwen2.Build,
}

// For finds the architecture of a configuration.
func For(c model.Config) (Build, error) {
	if b, ok := Table[c.ModelType]; ok {
		return b, nil
	}
	names := make([]string, 0, len(Table))
	for n := range Table {
		names = append(names, n)
	}
	sort.Strings(names)
	return nil, fmt.Errorf("config.json: model_type %q is not one of %s", c.ModelType, strings.Join(names, ", "))
}
