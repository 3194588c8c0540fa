package train

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/adapter"
)

// checkTokens refuses rows of tokens that the model can't train. It also refuses a run that adds tokens and does not
// train their rows of the embeddings, or of the head where the task has one: its folder would lack these rows, and
// another program would give the tokens other ones.
func (o opened) checkTokens() error {
	rows := adapter.TokenRowsOf(o.Net.Adapter)
	err := rows.CheckModel(o.Base.Config.VocabSize, o.Base.Config.TieEmbeddings, o.Net.Adapter.Saved())
	if err != nil || len(o.Base.Added) == 0 {
		return err
	}
	of := map[string][]int{o.Base.Config.Scope() + ".embed_tokens.weight": rows.Embeddings,
		adapter.HeadWeight: rows.Head}
	untrained := ""
	trains := func(weight string) bool {
		return o.Net.Trains()(weight) || o.Net.Adapted && !slices.ContainsFunc(o.Base.Added, func(id int32) bool {
			return !slices.Contains(of[weight], int(id))
		})
	}
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
	if !o.Net.Method.Whole() {
		advice += "; or train these rows alone by lora.trainable_token_indices: [" + o.addedRows() + "]"
	}
	return fmt.Errorf("tokenizer: the rows of the %s in %s are not trained, and the output folder would lack them: %s",
		count(len(o.Base.Added), "added token"), untrained, advice)
}

// addedRows lists the rows of the added tokens as lora.trainable_token_indices takes them.
func (o opened) addedRows() string {
	var entries []string
	for _, id := range o.Base.Added {
		entries = append(entries, fmt.Sprint(id))
		if !o.Base.Config.TieEmbeddings {
			entries = append(entries, fmt.Sprintf("%q", fmt.Sprint("lm_head:", id)))
		}
	}
	return strings.Join(entries, ", ")
}
