package session

import (
	"strings"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/weights"
)

// Parameters are counts of a model's parameters.
type Parameters struct {
	All int64
	// Active is the number of parameters that take part in the prediction of a token: all except the experts that the
	// token is not routed to. It includes the whole table of embeddings, as most makers count.
	Active int64
	// ActiveLessTable is Active without a table of embeddings from which a token only reads a row, as some makers
	// count. A table that is also the head counts as a whole.
	ActiveLessTable int64
}

// Tensors gives the names and shapes of tensors.
type Tensors interface {
	Names() []string
	Tensor(name string) (weights.Tensor, bool)
}

// CountParameters counts the parameters of a model, by the names that the tensors have in its network or in its
// checkpoint.
func CountParameters(c model.Config, tensors Tensors) Parameters {
	var all, experts, table int64
	inNetwork := families.Table[c.ModelType].Names
	for _, name := range tensors.Names() {
		t, _ := tensors.Tensor(name)
		n := int64(t.Len())
		if inNetwork != nil {
			name = inNetwork(name)
		}
		all += n
		switch {
		case families.IsExpert(c, name):
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
