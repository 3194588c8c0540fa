package llamacpp

import (
	"fmt"
	"strings"
)

// Texts that llama.cpp takes as special tokens wherever a vocabulary has them, of whatever kind the file says they are
// (llama-vocab.cpp): those that end an answer, and those that mark places in it.
var (
	endings = strings.Fields(
		`</s> <eos> <end_of_turn> <end_of_utterance> <turn|> <PAD> <REPO> <reponame> <fim-pad> <fim-repo> <fim_pad> [EOS] [EOT] [PAD] _<EOT> <EOT>
		<|call|> <|calls|> <|end_of_text|> <|endoftext|> <|end|> <|eom_id|> <|eot_id|> <|file_sep|> <|fim_pad|> <|fim_repo|> <|flush|> <|im_end|> <|repo_name|> <|return|>
		<|tool_response> <｜end▁of▁sentence｜>`)
	marks = strings.Fields(
		`<PRE> <SUF> <MID> ▁<PRE> ▁<SUF> ▁<MID> <fim-prefix> <fim-suffix> <fim-middle> <fim_prefix> <fim_suffix> <fim_middle> <|fim_prefix|> <|fim_suffix|>
		<|fim_middle|> <|code_prefix|> <|code_suffix|> <|code_middle|> <|prefix|> <|suffix|> <|middle|> <|channel|> <|constrain|> <|start|> <｜fim▁begin｜> <｜fim▁hole｜>
		<｜fim▁end｜>`)
)

// notSpecial notes the tokens that are special in llama.cpp and text here.
func (p *Plan) notSpecial(list []string, kinds []int32) {
	ids := make(map[string]int, len(list))
	for id, token := range list {
		ids[token] = id
	}
	text := func(all []string) (found []string) {
		for _, token := range all {
			if id, ok := ids[token]; ok && (kinds[id] == kindNormal || kinds[id] == kindOwn) {
				found = append(found, fmt.Sprintf("%q (%d)", token, id))
			}
		}
		return found
	}
	if found := text(endings); found != nil {
		p.note("llama.cpp ends an answer at %s and takes it as one token in any text, this model's tokenizer doesn't",
			strings.Join(found, ", "))
	}
	if found := text(marks); found != nil {
		p.note("llama.cpp takes %s as one token in any text, this model's tokenizer doesn't", strings.Join(found, ", "))
	}
}
