package llamacpp

import (
	"slices"
	"strings"

	"github.com/tierlora/tierlora/export/gguf"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// shownOfGemma4 are special tokens between which answers have thoughts and calls of tools: as tokens of the user
// llama.cpp shows them to what reads an answer.
var shownOfGemma4 = strings.Fields(`<|channel> <channel|> <|tool_call> <tool_call|> <tool_response|> <|"|>`)

// characters adds a tokenizer that joins characters by merges, as llama.cpp does for Gemma 4 alone, and tells whether
// it could: its texts are cut between line ends and all else, and line ends that are a token together are one.
func (p *Plan) characters(f *file, t *tokenizer.Tokenizer) bool {
	before, err := p.spaces(f)
	if err != nil || before || f.Model.IgnoreMerges {
		return false
	}
	merges := make([]string, len(f.merges))
	for i, m := range f.merges {
		if made := m[0] + m[1]; strings.Contains(made, " ") || strings.Contains(made, "\n") &&
			strings.Trim(made, "\n") != "" {
			return false
		}
		merges[i] = m[0] + " " + m[1]
	}
	for token, id := range f.vocab {
		if token != "" && strings.Trim(token, "\n") == "" && !slices.Equal(t.IDs(token, false), []int32{int32(id)}) {
			return false
		}
	}
	p.add("tokenizer.ggml.model", "gemma4")
	p.add("tokenizer.ggml.merges", merges)
	p.add("tokenizer.ggml.add_space_prefix", false)
	return true
}

// beforeGemma4 notes the token that llama.cpp puts before texts of such a tokenizer, whatever the file says.
func (p *Plan) beforeGemma4(addBOS bool) {
	merged := slices.ContainsFunc(p.KVs, func(kv gguf.KV) bool {
		return kv.Key == "tokenizer.ggml.model" && kv.Value == "gemma4"
	})
	if merged && !addBOS {
		p.note("llama.cpp puts the first token (bos_token) before every text of a Gemma 4 model, this model's " +
			"tokenizer doesn't")
	}
}
