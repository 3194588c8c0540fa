package serve

import (
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/infer"
)

// classifyReply is vLLM's response of /v1/classify.
type classifyReply struct {
	headedReply
	Data []any `json:"data"` // classified or wordLabels
}

// classified is what a model says of a text.
type classified struct {
	Index int       `json:"index"`
	Label string    `json:"label"` // the most probable one
	Probs []float32 `json:"probs"`
	Count int       `json:"num_classes"`
}

// wordLabels is what a model says of the words of a text.
type wordLabels struct {
	Index int         `json:"index"`
	Words []wordLabel `json:"words"`
	Count int         `json:"num_classes"`
}

// wordLabel is what a model says of a word, or of a token of a text that came as tokens.
type wordLabel struct {
	Word  string    `json:"word"`
	Label string    `json:"label"`
	Probs []float32 `json:"probs"`
}

// classifyRequest parses the body of /v1/classify.
func (l *Library) classifyRequest(body []byte) (*headRequest, *Error) {
	f, wrong := readFields(body, "input", maxTexts*l.MaxLen)
	if wrong != nil {
		return nil, wrong
	}
	r := &headRequest{}
	r.model = l.headed(f, func(m infer.PredictorModel) bool { return m.Task.HasScores() },
		"a classifier (task: sequence_classification or token_classification)")
	plain := false // the scores as they are
	if on := true; f.flag("use_activation", &on) {
		plain = !on
	}
	t := l.reads(f, "input")
	if f.err != nil {
		return nil, f.err
	}
	var words []splitText
	if m := r.model.Head; m.Task.Type == adapter.TokenClassification {
		words = t.words()
		for _, w := range words {
			r.passages = t.add(r.passages, r.model, w.ids)
		}
		checkNumbers(f, "input", r.tokens(), m.Task.Labels)
	} else {
		r.passages = t.passages(r.model)
		checkNumbers(f, "input", len(r.passages), m.Task.Labels)
	}
	if f.unknown(); f.err != nil {
		return nil, f.err
	}
	r.reply = func(all [][]float32) any {
		out := classifyReply{headedReply: r.headedReply("classify")}
		out.Object = "list"
		for i, scores := range all {
			if words != nil {
				out.Data = append(out.Data, words[i].labels(i, *r.model.Head, scores, plain))
				continue
			}
			label, probs := r.model.Head.Judge(scores, plain)
			out.Data = append(out.Data, classified{i, label, probs, len(scores)})
		}
		return out
	}
	return r, nil
}

// splitText is a text whose words have labels.
type splitText struct {
	ids   []int32
	words []string
	first []int // the token of each word whose scores are the word's; -1 or beyond the text = it has none
}

// words reads texts and divides them at white space, as rows of token classification are. Lists of token ids have a
// label for each token.
func (t *headTexts) words() (all []splitText) {
	plain, ids := t.read()
	if t.f.err != nil {
		return nil
	}
	for _, text := range plain {
		s := splitText{words: strings.Fields(t.bounded(text))}
		s.ids, s.first = dataset.WordIDs(s.words, t.Tokenizer)
		s.ids = t.fitting(s.ids)
		all = append(all, s)
	}
	for _, list := range ids {
		s := splitText{ids: t.fitting(list)}
		for i, id := range s.ids {
			s.words, s.first = append(s.words, t.tokenText(id)), append(s.first, i)
		}
		all = append(all, s)
	}
	return all
}

// labels returns what the scores [T,L] of the text's tokens say of its words.
func (s splitText) labels(index int, m infer.PredictorModel, scores []float32, plain bool) wordLabels {
	n := m.Task.Labels
	out := wordLabels{Index: index, Words: []wordLabel{}, Count: n}
	for i, word := range s.words {
		if t := s.first[i]; t >= 0 && t < len(s.ids) {
			label, probs := m.Judge(scores[t*n:][:n], plain)
			out.Words = append(out.Words, wordLabel{word, label, probs})
		}
	}
	return out
}
