package model

import "strings"

// Head is what a checkpoint has behind its layers, as the name of its class in transformers ends.
type Head string

// The heads of checkpoints. The zero value is a vocabulary head, of a class XForCausalLM.
const (
	SequenceHead Head = "ForSequenceClassification" // scores of a text
	TokenHead    Head = "ForTokenClassification"    // scores of each token
	NoHead       Head = "Model"                     // hidden states alone, of which vectors of texts are made
)

const causalClass = "ForCausalLM"

// Class returns the name of transformers' class of a family with a head. causal is the family's class XForCausalLM; ok
// is false for a class of another name, such as that of a model of text and images.
func (h Head) Class(causal string) (name string, ok bool) {
	family, ok := strings.CutSuffix(causal, causalClass)
	if h == "" {
		return causal, ok
	}
	return family + string(h), ok
}

// head returns the head of a checkpoint by its architectures; ok is false if they name no class of the family.
func (d Dialect) head(architectures []string) (h Head, ok bool) {
	if d.named(architectures) {
		return "", true
	}
	for _, h := range []Head{SequenceHead, TokenHead, NoHead} {
		class, ok := h.Class(d.Architecture)
		if ok && len(architectures) == 1 && strings.EqualFold(architectures[0], class) {
			return h, true
		}
	}
	return "", false
}
