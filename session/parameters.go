package session

import (
	"strings"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/weights"
)

// Parameters counts a model's numbers.
type Parameters struct {
	All int64
	// Active are those that take part in a token's prediction: all but the experts that it is not sent to. The whole table of
	// embeddings is among them, as most makers count it.
	Active int64
	// ActiveLessTable are Active without a table of embeddings from which a token takes a row and nothing else, as some makers
	// count. A table that is the head as well takes part as a whole.
	ActiveLessTable int64
}

// Tensors are named tensors.
type Tensors interface {
	Names() []string
	Tensor(name string) (weights.Tensor, bool)
}

// CountParameters counts the tensors of a model, by the names that they have in its network or in its checkpoint.
func CountParameters(c model.Config, tensors Tensors) Parameters {
	var all, experts, table int64
	for _, name := range tensors.Names() {
		t, _ := tensors.Tensor(name)
		n := int64(t.Len())
		all += n
		switch {
		case strings.Contains(name, ".experts."):
			experts += n
		case strings.HasSuffix(name, ".embed_tokens.weight") && !c.TieEmbeddings:
			table += n
		}
	}
	active := all
	if c.Experts > 0 {
		active -= experts / int64(c.Experts) * int64(c.Experts-c.ExpertsPerToken)
	}
	return Parameters{all, active, active - table}
}
