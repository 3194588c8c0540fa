package train

import (
	"fmt"

	"github.com/tierlora/tierlora/adapter"
)

// checkTokens refuses a run that adds tokens and does not train their rows of the embeddings, or of the head where the
// task has one: its folder would lack these rows, and another program would give the tokens other ones.
func (o opened) checkTokens() error {
	if len(o.Base.Added) == 0 {
		return nil
	}
	untrained := ""
	trains := o.Net.Trains()
	switch embeddings := o.Base.Config.Scope() + ".embed_tokens.weight"; {
	case !trains(embeddings):
		untrained = embeddings
	case o.spec.task().Type != "" || o.Base.Config.TieEmbeddings && !o.Net.UntiedHead():
		return nil
	case !trains(adapter.HeadWeight):
		untrained = adapter.HeadWeight
	default:
		return nil
	}
	advice := "name lm_head and embed_tokens in lora.modules_to_save"
	switch {
	case o.Net.Method.Whole():
		advice = "name lm_head and embed_tokens in full.train, or leave full.train out"
	case o.Base.Config.TieEmbeddings:
		advice += ", and set lora.ensure_weight_tying: true so that head and embeddings stay tied"
	}
	return fmt.Errorf("tokenizer: the rows of the %s in %s are not trained, and the output folder would lack them: %s",
		count(len(o.Base.Added), "added token"), untrained, advice)
}
