package serve

import (
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/infer"
)

// Limits of one request.
const (
	maxChoices  = 128 // n
	maxPrompts  = 256
	maxAnswers  = 512 // n times prompts
	maxStops    = 16
	maxTop      = 20   // logprobs, top_logprobs
	maxBias     = 1024 // tokens of logit_bias
	maxMessages = 4096
)

// request holds what both endpoints have in common.
type request struct {
	model    *Model
	chat     bool
	prompts  []prompt
	n        int
	sampling Sampling
	score    bool // only score the prompt, generate nothing
	fill     bool // MaxTokens is the rest of MaxLen
	stream   bool
	usage    bool // the stream ends with the usage
	echo     bool
	logprobs bool
	top      int
}

// ignored lists parameters that do not affect the answers of this server.
var ignored = []string{"user", "metadata", "store", "parallel_tool_calls", "service_tier", "safety_identifier",
	"prompt_cache_key", "prompt_cache_retention"}

// unserved lists parameters that would affect the answer and are not supported.
var unserved = map[string]string{
	"functions":       "is the older form of tools: write tools",
	"function_call":   "is the older form of tool_choice: write tool_choice",
	"suffix":          "is not served: the models here continue a text and do not fill a gap",
	"best_of":         "is not served: ask for n answers",
	"use_beam_search": "is not served: tokens are chosen one by one",
	"audio":           "is not served: these models write text",
	"prediction":      "is not served",
	"guided_json":     "is vLLM's older form: write response_format with type json_schema",
	"guided_regex":    "is not served: of forms only JSON is, by response_format",
	"guided_choice":   "is not served: of forms only JSON is, by response_format",
	"guided_grammar":  "is not served: of forms only JSON is, by response_format",
}

// common reads the parameters of both endpoints.
func (l *Library) common(f *fields, r *request) {
	for _, key := range ignored {
		f.raw(key)
	}
	for _, key := range sortedKeys(unserved) {
		if f.raw(key) != nil {
			f.wrong(key, "%s", unserved[key])
		}
	}
	var name string
	if !f.text("model", &name) {
		f.wrong("model", "is missing; GET /v1/models lists the names")
	} else if m, err := l.find(name); err == nil && m.Head != nil {
		f.wrong("model", "%s gives scores or vectors of texts, and writes no text: ask it by %s", clip(name),
			strings.Join(m.endpoints(), " or "))
	} else if err == nil {
		r.model = m
	} else if f.err == nil {
		f.err = err
	}
	s := &r.sampling
	s.Temperature, s.TopP = 1, 1
	f.number("temperature", &s.Temperature, 0, 100)
	f.number("top_p", &s.TopP, 0, 1)
	f.number("min_p", &s.MinP, 0, 1)
	f.whole("top_k", &s.TopK, -1, 1<<31-1)
	s.TopK = max(0, s.TopK) // vLLM uses -1 for all
	f.number("presence_penalty", &s.PresencePenalty, -2, 2)
	f.number("frequency_penalty", &s.FrequencyPenalty, -2, 2)
	f.number("repetition_penalty", &s.RepetitionPenalty, 0.01, 100)
	l.bias(f, s)
	s.Seed = rand.Uint64()
	if v := f.raw("seed"); v != nil {
		seed, err := strconv.ParseInt(string(v), 10, 64)
		s.Seed = uint64(seed)
		if err != nil {
			s.Seed, err = strconv.ParseUint(string(v), 10, 64)
		}
		if err != nil {
			f.wrong("seed", "is %s, want a whole number of 64 bits", kindOf(v))
		}
	}
	r.n = 1
	f.whole("n", &r.n, 1, maxChoices)
	f.texts("stop", &r.sampling.Stop)
	if len(r.sampling.Stop) > maxStops {
		f.wrong("stop", "has %d texts, want at most %d", len(r.sampling.Stop), maxStops)
	} else if err := infer.CheckStops(r.sampling.Stop); err != nil {
		f.wrong("stop", "%s", err)
	}
	f.flag("stream", &r.stream)
	if in := f.inner("stream_options"); in != nil {
		in.flag("include_usage", &r.usage)
		f.done(in)
		if !r.stream {
			f.wrong("stream_options", "is only for stream: true")
		}
	}
	l.responseFormat(f, &r.sampling)
}

// bias reads logit_bias, whose keys are token ids.
func (l *Library) bias(f *fields, s *Sampling) {
	var bias map[string]json.RawMessage
	if !f.read("logit_bias", &bias, "an object of token ids and numbers") {
		return
	}
	if len(bias) > maxBias {
		f.wrong("logit_bias", "has %d tokens, want at most %d", len(bias), maxBias)
		return
	}
	in := &fields{at: "logit_bias.", object: bias}
	s.Bias = make(map[int32]float64, len(bias))
	for _, key := range sortedKeys(bias) {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil || id < 0 || id >= int64(l.Vocabulary) {
			in.wrong(clip(key), "is no token of this model, which has ids from 0 to %d", l.Vocabulary-1)
			break
		}
		var x float64
		if in.number(key, &x, -100, 100) {
			s.Bias[int32(id)] = x
		}
	}
	if f.err == nil {
		f.err = in.err
	}
}

// completion parses the body of /v1/completions.
func (l *Library) completion(body []byte) (*request, *Error) {
	f, err := readFields(body, "prompt", maxPrompts*l.MaxLen)
	if err != nil {
		return nil, err
	}
	r := &request{}
	l.common(f, r)
	r.sampling.MaxTokens = 16
	f.whole("max_tokens", &r.sampling.MaxTokens, 0, 1<<31-1)
	f.flag("echo", &r.echo)
	if f.whole("logprobs", &r.top, 0, maxTop) {
		r.logprobs, r.sampling.Logprobs, r.sampling.TopLogprobs = true, true, r.top
		r.sampling.PromptLogprobs = r.echo
	}
	texts := l.readPrompts(f)
	f.unknown()
	if f.err != nil {
		return nil, f.err
	}
	if r.score = r.sampling.MaxTokens == 0; r.score && !r.echo {
		return nil, invalid("max_tokens", "max_tokens: is 0, which only a request with echo: true may ask for")
	}
	r.prompts = texts
	return r, l.fits(r)
}

// as decodes JSON of type T.
func as[T any](raw []byte) (v T, ok bool) {
	err := json.Unmarshal(raw, &v)
	return v, err == nil
}

// fits checks a request's lengths, and sets MaxTokens if it is the rest of MaxLen.
func (l *Library) fits(r *request) *Error {
	if n := r.n * len(r.prompts); n > maxAnswers {
		return invalid("n", "n: %d answers to each of %d prompts are %d, want at most %d in one request", r.n,
			len(r.prompts), n, maxAnswers)
	}
	what, from := "the prompt", "prompt"
	if r.chat {
		what, from = "the conversation", "messages"
	}
	longest := 0
	for _, p := range r.prompts {
		longest = max(longest, len(p.IDs))
	}
	switch {
	case longest >= l.MaxLen:
		return l.tooLong(from, what, longest)
	case r.fill:
		r.sampling.MaxTokens = l.MaxLen - longest
	case longest+r.sampling.MaxTokens > l.MaxLen:
		e := invalid("max_tokens",
			"max_tokens: %s has %d tokens, %d more are above the %d that a sequence may have; ask for at most %d", what,
			longest, r.sampling.MaxTokens, l.MaxLen, l.MaxLen-longest)
		e.Code = "context_length_exceeded"
		return e
	}
	return nil
}

// answers returns the number of sequences of a request.
func (r *request) answers() int { return r.n * len(r.prompts) }

// at returns the prompt of answer i.
func (r *request) at(i int) *prompt { return &r.prompts[i/r.n] }

// seed returns the seed of answer i: answers to one prompt have different seeds.
func (r *request) seed(i int) uint64 { return r.sampling.Seed + uint64(i%r.n) }

// promptTokens counts each prompt once, as OpenAI does.
func (r *request) promptTokens() (n int) {
	for _, p := range r.prompts {
		n += len(p.IDs)
	}
	return n
}

// hasText reports whether a template's source contains one of some texts.
func hasText(source string, any ...string) bool {
	for _, s := range any {
		if strings.Contains(source, s) {
			return true
		}
	}
	return false
}
