package infer

import (
	"errors"
	"fmt"
	"math"

	"github.com/tierlora/tierlora/infer/jsonform"
)

// GenerateOptions controls how tokens are chosen. The zero value decodes greedily: it takes the likeliest token at
// every position.
//
// The logits are changed in this order: bias; repetition penalty; frequency and presence penalties; temperature; top-k;
// top-p; min-p. At temperature 0 the likeliest token after the penalties is taken.
type GenerateOptions struct {
	MaxTokens   int
	Temperature float64 // divisor of the logits; 0 = greedy decoding
	TopK        int     // number of likeliest tokens to sample from; 0 = all
	TopP        float64 // nucleus sampling: least total probability of the tokens to sample from; 0 or 1 = all
	MinP        float64 // least probability of a token, relative to the likeliest token's; 0 = all
	Seed        uint64  // seed of the sequence's own random number stream

	// RepetitionPenalty divides the positive logits, and multiplies the negative logits, of every token that the prompt
	// or the answer has so far (Keskar et al., "CTRL", 2019; transformers' repetition_penalty). 0 or 1 = none.
	RepetitionPenalty float64
	// FrequencyPenalty is subtracted from a token's logit once for each occurrence in the answer, PresencePenalty once
	// if the answer has the token at all (OpenAI's frequency_penalty and presence_penalty).
	FrequencyPenalty, PresencePenalty float64
	// Bias maps token ids to numbers that are added to their logits.
	Bias map[int32]float64

	// Form constrains the answer to JSON that matches a schema; the answer ends with the JSON value. nil = any text.
	// The form's vocabulary must be the model's.
	Form *jsonform.Form

	Stop []string // texts that end the answer; the answer does not include them

	Logprobs    bool // report the log-probability of each token
	TopLogprobs int  // number of likeliest tokens to report with their log-probabilities
	// logprobsOfDraw reports the log-probabilities of logits that the temperature divides.
	logprobsOfDraw bool
	// PromptLogprobs reports the log-probabilities of the prompt's tokens. It needs an engine with EngineOptions.Score.
	PromptLogprobs bool
}

// Limits of GenerateOptions.
const (
	MaxTemperature = 100
	MaxTopLogprobs = 100
	MaxPenalty     = 100 // of each of the three penalties
)

// Check returns every option that is out of range for a vocabulary of the given size.
func (o GenerateOptions) Check(vocabulary int) error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	within := func(name string, v, least, most float64) {
		if !(v >= least && v <= most) {
			bad("%s is %v: must lie in %v to %v", name, v, least, most)
		}
	}
	within("temperature", o.Temperature, 0, MaxTemperature)
	within("top-p", o.TopP, 0, 1)
	within("min-p", o.MinP, 0, 1)
	within("repetition penalty", o.RepetitionPenalty, 0, MaxPenalty)
	within("frequency penalty", o.FrequencyPenalty, -MaxPenalty, MaxPenalty)
	within("presence penalty", o.PresencePenalty, -MaxPenalty, MaxPenalty)
	if o.TopK < 0 {
		bad("top-k is %d: must be 0 or more", o.TopK)
	}
	if o.TopLogprobs < 0 || o.TopLogprobs > MaxTopLogprobs {
		bad("top logprobs is %d: must be from 0 to %d", o.TopLogprobs, MaxTopLogprobs)
	}
	first := int32(math.MaxInt32) // the smallest id, so that the error does not depend on the map's order
	for id, by := range o.Bias {
		if id < 0 || int(id) >= vocabulary || math.IsNaN(by) || math.IsInf(by, 0) {
			first = min(first, id)
		}
	}
	if first != math.MaxInt32 {
		bad("the bias of token %d is %v: biases must be finite, and tokens from 0 to %d", first,
			o.Bias[first], vocabulary-1)
	}
	return errors.Join(problems...)
}
