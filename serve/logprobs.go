package serve

import "unicode/utf8"

// chatLogprobs is the field logprobs of a chat completion.
type chatLogprobs struct {
	Content []chatLogprob `json:"content"`
	Refusal *string       `json:"refusal"`
}

type chatLogprob struct {
	tokenLogprob
	Top []tokenLogprob `json:"top_logprobs"`
}

type tokenLogprob struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

// chatLogprobs formats tokens for the chat endpoint. The result is not nil, so that no tokens give an empty list.
func (l *Library) chatLogprobs(tokens []Scored, top int) *chatLogprobs {
	out := &chatLogprobs{Content: []chatLogprob{}}
	for _, t := range tokens {
		c := chatLogprob{tokenLogprob: l.tokenLogprob(t.TopToken), Top: []tokenLogprob{}}
		for _, other := range t.Top[:min(top, len(t.Top))] {
			c.Top = append(c.Top, l.tokenLogprob(other))
		}
		out.Content = append(out.Content, c)
	}
	return out
}

// tokenLogprob omits bytes if the token is a part of a character.
func (l *Library) tokenLogprob(p TopToken) tokenLogprob {
	out := tokenLogprob{Token: l.tokenText(p.ID), Logprob: p.Logprob}
	for i, r := range out.Token {
		if r == utf8.RuneError && i >= 0 {
			return out
		}
	}
	for _, b := range []byte(out.Token) {
		out.Bytes = append(out.Bytes, int(b))
	}
	return out
}

// textLogprobs is the field logprobs of /v1/completions. A prompt's first token has no probability: null.
type textLogprobs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []*float64           `json:"token_logprobs"`
	TopLogprobs   []map[string]float64 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"` // characters

	offset int
}

// add appends a token with its top alternatives.
func (t *textLogprobs) add(l *Library, s Scored, top int) {
	text := l.tokenText(s.ID)
	likeliest := map[string]float64{}
	for _, other := range s.Top[:min(top, len(s.Top))] {
		name := l.tokenText(other.ID)
		if _, has := likeliest[name]; !has { // tokens that are parts of characters may have the same name
			likeliest[name] = other.Logprob
		}
	}
	if _, has := likeliest[text]; !has {
		likeliest[text] = s.Logprob
	}
	p := s.Logprob
	t.push(text, &p, likeliest)
}

func (t *textLogprobs) push(text string, p *float64, top map[string]float64) {
	t.Tokens = append(t.Tokens, text)
	t.TokenLogprobs = append(t.TokenLogprobs, p)
	t.TopLogprobs = append(t.TopLogprobs, top)
	t.TextOffset = append(t.TextOffset, t.offset)
	t.offset += utf8.RuneCountInString(text)
}
