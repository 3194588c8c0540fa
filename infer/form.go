package infer

import (
	"github.com/tierlora/tierlora/infer/jsonform"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// Vocabulary is a tokenizer's tokens for GenerateOptions.Form. Special tokens take no part.
func Vocabulary(tok *tokenizer.Tokenizer) *jsonform.Vocabulary {
	all := make([][]byte, tok.VocabSize())
	for id := range all {
		all[id] = tok.Bytes(int32(id))
	}
	return jsonform.NewVocabulary(all)
}

// turn is the text that ends an answer to a prompt, "" where a token or the form does.
func (o GenerateOptions) turn(p Prompt) string {
	if o.Form != nil {
		return ""
	}
	return p.End
}
