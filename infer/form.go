package infer

import (
	"github.com/tierlora/tierlora/infer/jsonform"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// Vocabulary returns a tokenizer's tokens for GenerateOptions.Form. Special tokens are left out.
func Vocabulary(tok *tokenizer.Tokenizer) *jsonform.Vocabulary {
	all := make([][]byte, tok.VocabSize())
	for id := range all {
		all[id] = tok.Bytes(int32(id))
	}
	return jsonform.NewVocabulary(all)
}

// turn returns the text that ends an answer to p, or "" if a token or the form ends it.
func (o GenerateOptions) turn(p Prompt) string {
	if o.Form != nil {
		return ""
	}
	return p.End
}
