package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/infer"
)

// Limits of a request for scores or vectors.
const (
	maxTexts   = 2048    // texts of a request, as OpenAI's limit
	maxTokens  = 1 << 19 // tokens of all texts of a request together
	maxNumbers = 1 << 23 // numbers of an answer
)

// Paths of models with a head.
const (
	pathEmbeddings = "/v1/embeddings"
	pathRerank     = "/v1/rerank"
	pathClassify   = "/v1/classify"
)

// headPaths maps the paths of models with a head to what they give. Jina, Cohere, vLLM and text-embeddings-inference
// have the others of a kind.
var headPaths = map[string]string{pathEmbeddings: pathEmbeddings, pathRerank: pathRerank, "/rerank": pathRerank,
	"/v2/rerank": pathRerank, pathClassify: pathClassify, "/classify": pathClassify}

// endpoints returns the paths that answer for a model with a head.
func (m *Model) endpoints() (all []string) {
	if embeds(*m.Head) {
		all = append(all, pathEmbeddings)
	} else {
		all = append(all, pathClassify)
	}
	if ranks(*m.Head) {
		all = append(all, pathRerank)
	}
	return all
}

// headRequest is a request for scores or vectors of texts.
type headRequest struct {
	model    *Model
	passages []infer.Passage
	reply    func(all [][]float32) any // the response, from the numbers of each passage
}

// tokens counts the tokens of a request.
func (r *headRequest) tokens() (n int) {
	for _, p := range r.passages {
		n += len(p.IDs)
	}
	return n
}

// usage is OpenAI's count of tokens, for answers without text.
func (r *headRequest) usage() map[string]int {
	return map[string]int{"prompt_tokens": r.tokens(), "total_tokens": r.tokens()}
}

// predict answers a request for scores or vectors; read parses the body.
func (s *Server) predict(w http.ResponseWriter, r *http.Request, read func([]byte) (*headRequest, *Error)) *Error {
	arrived := time.Now()
	var req *headRequest
	wrong := s.parsed(w, r, func(body []byte) (wrong *Error) {
		req, wrong = read(body)
		return wrong
	})
	if wrong != nil {
		return wrong
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), s.o.Timeout, fmt.Errorf("%w, %v", errTimeout, s.o.Timeout))
	defer cancel()
	all, err := s.batcher.Predict(ctx, req.passages)
	if err != nil {
		return s.failed(r, err)
	}
	s.metrics.took(time.Since(arrived))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.o.WriteTimeout))
	writeJSON(w, http.StatusOK, req.reply(all))
	return nil
}

// headed reads what the requests for scores and vectors have in common: the model, which must suit the endpoint.
func (l *Library) headed(f *fields, suits func(infer.PredictorModel) bool, wants string) *Model {
	for _, key := range append([]string{"priority"}, ignored...) {
		f.raw(key)
	}
	var name string
	if !f.text("model", &name) {
		f.wrong("model", "is missing; GET /v1/models lists the names")
		return nil
	}
	m, err := l.find(name)
	switch {
	case err != nil && f.err == nil:
		f.err = err
	case err == nil && m.Head == nil:
		f.wrong("model", "%s writes text, and this endpoint wants %s: ask it by /v1/chat/completions or "+
			"/v1/completions", clip(name), wants)
	case err == nil && !suits(*m.Head):
		f.wrong("model", "%s has task_type %s, and this endpoint wants %s", clip(name), m.Head.Task.Type, wants)
	}
	return m
}

// embeds reports whether a model gives vectors.
func embeds(m infer.PredictorModel) bool { return m.Task.Type == adapter.FeatureExtraction }

// reads returns the reader of a key's texts for a model with a head.
func (l *Library) reads(f *fields, key string) *headTexts {
	t := &headTexts{texts: texts{Library: l, f: f, key: key, noun: "text", most: maxTexts, longest: l.MaxLen},
		keep: l.MaxLen}
	if f.whole("truncate_prompt_tokens", &t.keep, -1, l.MaxLen) {
		if t.cuts = true; t.keep < 1 {
			t.keep = l.MaxLen
		}
		t.longest = maxValues
	}
	return t
}

// headTexts reads the texts of a request for scores or vectors.
type headTexts struct {
	texts
	keep  int  // most tokens of a text
	cuts  bool // longer texts lose their end
	total int  // tokens of the texts that were read
}

// encode returns the tokens of texts that are read one after the other. It checks the length of each before the next.
func (t *headTexts) encode(list ...string) (ids []int32) {
	for _, text := range list {
		text = t.bounded(text)
		if t.f.err == nil {
			ids = append(ids, dataset.TextIDs([]string{text}, t.Tokenizer)...)
		}
	}
	return t.fitting(ids)
}

// bounded checks a text's bytes before it is read into tokens. A text that is to be cut loses bytes that lie far behind
// its last token.
func (t *headTexts) bounded(text string) string {
	err := t.tooLarge(t.key, "the "+t.noun, len(text))
	if err != nil && t.cuts {
		return strings.ToValidUTF8(text[:min(len(text), 2*(t.MaxLen+1)*t.Library.longest)], "")
	}
	if err != nil && t.f.err == nil {
		t.f.err = err
	}
	return text
}

// fitting returns the tokens of a text, without those that are too many.
func (t *headTexts) fitting(ids []int32) []int32 {
	switch {
	case t.f.err != nil:
	case len(ids) == 0:
		t.f.wrong(t.key, "a text has no token")
	case len(ids) <= t.keep:
	case t.cuts:
		return ids[:t.keep]
	default:
		t.f.err = t.tooLong(t.key, "the "+t.noun, len(ids))
	}
	return ids
}

// passages reads the texts of the key: strings, token ids, or pairs of strings where a model reads two texts.
func (t *headTexts) passages(m *Model) (all []infer.Passage) {
	if list := bytes.TrimSpace(t.f.object[t.key]); m != nil && len(list) > 0 && firstOf(list) == '[' &&
		firstOf(bytes.TrimLeft(list[1:], " \t\r\n")) == '"' {
		return t.pairs(m, list)
	}
	plain, ids := t.read()
	if t.f.err != nil {
		return nil
	}
	for _, text := range plain {
		all = t.add(all, m, t.encode(text))
	}
	for _, list := range ids {
		all = t.add(all, m, t.fitting(list))
	}
	return all
}

// add appends the tokens of a text to passages for a model, unless the request has too many.
func (t *headTexts) add(all []infer.Passage, m *Model, ids []int32) []infer.Passage {
	if t.total += len(ids); t.total > maxTokens {
		t.f.wrong(t.key, "the %ss have more than %d tokens together: ask in several requests", t.noun, maxTokens)
	}
	if t.f.err != nil {
		return all
	}
	return append(all, infer.Passage{Model: m.Index, IDs: ids})
}

// pairs reads lists of strings, which are read one after the other.
func (t *headTexts) pairs(m *Model, list []byte) (all []infer.Passage) {
	t.f.raw(t.key)
	if !t.count(topValues(list)) {
		return nil
	}
	var pairs [][]string
	ok := extentOf(list).values <= 1+4*t.most // before they are decoded
	if ok {
		pairs, ok = as[[][]string](list)
	}
	for i := 0; ok && i < len(pairs); i++ {
		ok = len(pairs[i]) == 1 || len(pairs[i]) == 2
	}
	if !ok || embeds(*m.Head) {
		t.f.wrong(t.key, "is %s, want %s%s", kindOf(list), wantPrompt, map[bool]string{
			false: ", or a list of lists of one or two strings"}[embeds(*m.Head)])
		return nil
	}
	for _, pair := range pairs {
		all = t.add(all, m, t.encode(pair...))
	}
	return all
}

// headedReply is the common part of vLLM's responses of models with a head.
type headedReply struct {
	ID      string         `json:"id"`
	Object  string         `json:"object,omitempty"`
	Created int64          `json:"created"`
	Model   string         `json:"model"`
	Usage   map[string]int `json:"usage"`
}

func (r *headRequest) headedReply(id string) headedReply {
	return headedReply{ID: id + "-" + randomText(24), Created: time.Now().Unix(), Model: r.model.Name, Usage: r.usage()}
}

// checkNumbers refuses a request whose answer would be too long: so many numbers for each text.
func checkNumbers(f *fields, key string, texts, each int) {
	if n := texts * each; n > maxNumbers {
		f.wrong(key, "%d texts have %d numbers together, and an answer may have %d: ask in several requests", texts, n,
			maxNumbers)
	}
}

// rankRequest parses the body of /v1/rerank, compatible with Jina's and Cohere's.
func (l *Library) rankRequest(body []byte) (*headRequest, *Error) {
	f, wrong := readFields(body, "documents", 0)
	if wrong != nil {
		return nil, wrong
	}
	r := &headRequest{}
	r.model = l.headed(f, ranks, "a reranker: a model with one score, or one that gives vectors")
	var query string
	if !f.text("query", &query) || query == "" {
		f.wrong("query", "is missing or empty: want the text that the documents are compared with")
	}
	t := l.reads(f, "documents")
	documents := t.documents()
	top, most, show := len(documents), 0, true
	f.whole("top_n", &top, 1, 1<<31-1)
	f.whole("max_tokens_per_doc", &most, 1, 1<<31-1)
	f.flag("return_documents", &show)
	f.unknown()
	if f.err != nil {
		return nil, f.err
	}
	q := *t
	q.key, q.noun = "query", "query"
	asked := q.encode(query)
	vectors := embeds(*r.model.Head)
	if vectors {
		r.passages, asked = t.add(r.passages, r.model, asked), nil
	}
	for _, document := range documents {
		own := t.encode(document)
		if most > 0 && len(own) > most {
			own = own[:most]
		}
		if asked != nil {
			own = t.fitting(slices.Concat(asked, own))
		}
		r.passages = t.add(r.passages, r.model, own)
	}
	if f.err != nil {
		return nil, f.err
	}
	r.reply = func(all [][]float32) any {
		out := rankReply{headedReply: r.headedReply("rerank"), Results: ranked(*r.model.Head, all)}
		for i := range out.Results {
			if show {
				out.Results[i].Document = &rankedText{documents[out.Results[i].Index]}
			}
		}
		out.Results = out.Results[:min(top, len(out.Results))]
		return out
	}
	return r, nil
}

// ranks reports whether a model can compare texts with a query.
func ranks(m infer.PredictorModel) bool {
	return embeds(m) || m.Task.Type == adapter.SequenceClassification && m.Task.Labels == 1
}

// documents reads strings, or objects with a text.
func (t *headTexts) documents() (all []string) {
	var list []json.RawMessage
	v := t.f.raw(t.key)
	if v == nil {
		t.f.wrong(t.key, "is missing: want a list of strings")
		return nil
	}
	if v = bytes.TrimSpace(v); v[0] != '[' {
		t.f.wrong(t.key, "is %s, want a list of strings", kindOf(v))
		return nil
	}
	if t.f.read(t.key, &list, "a list of strings"); !t.count(len(list)) {
		return nil
	}
	for i, raw := range list {
		text, ok := as[string](raw)
		if !ok {
			var of struct{ Text *string }
			if of, ok = as[struct{ Text *string }](raw); ok && of.Text != nil {
				text = *of.Text
			}
			ok = of.Text != nil
		}
		if !ok {
			t.f.wrong(t.key, "[%d] is %s, want a string, or an object with text", i, kindOf(raw))
			return nil
		}
		all = append(all, text)
	}
	return all
}

// rankReply is the response of /v1/rerank.
type rankReply struct {
	headedReply
	Results []rank `json:"results"`
}

type rank struct {
	Index    int         `json:"index"`
	Score    float32     `json:"relevance_score"`
	Document *rankedText `json:"document,omitempty"`
}

type rankedText struct {
	Text string `json:"text"`
}

// ranked orders documents by their scores, the largest first and equal ones as they came. The scores of a head are its
// probabilities, unless it gives numbers. For vectors they are the cosines with the first of them, the query's.
func ranked(m infer.PredictorModel, all [][]float32) (out []rank) {
	if embeds(m) {
		for i, v := range all[1:] {
			out = append(out, rank{Index: i, Score: cosine(all[0], v)})
		}
	} else {
		for i, scores := range all {
			r := rank{Index: i, Score: scores[0]}
			if m.Head.Problem != adapter.Regression {
				r.Score = infer.Sigmoid(scores[0])
			}
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b rank) int {
		switch {
		case a.Score > b.Score:
			return -1
		case a.Score < b.Score:
			return 1
		}
		return 0
	})
	return out
}
