package infer

import (
	"errors"
	"fmt"
	"math"

	"github.com/tierlora/tierlora/infer/jsonform"
)

// GenerateOptions steer the choice of tokens. The zero value takes the likeliest token at every place.
//
// Of the logits, in this order: bias; the repetition penalty; frequency and presence penalties; temperature; top-k;
// top-p; min-p. With temperature 0 the likeliest token after the penalties is taken.
type GenerateOptions struct {
	MaxTokens   int
	Temperature float64 // divides the logits; 0 = the likeliest token
	TopK        int     // most tokens to choose from; 0 = all
	TopP        float64 // least part of the probability to choose from; 0 or 1 = all
	MinP        float64 // least probability of a token to choose, as a part of the likeliest one's; 0 = all
	Seed        uint64  // of the sequence's own stream of random numbers

	// RepetitionPenalty divides the logit of every token of the prompt and of the answer so far where it is above zero,
	// and multiplies it where it is below (Keskar et al., "CTRL", 2019; transformers' repetition_penalty). 0 or 1 =
	// none.
	RepetitionPenalty float64
	// FrequencyPenalty is subtracted from a token's logit for each time that the answer has it, PresencePenalty once if
	// the answer has it (OpenAI's frequency_penalty and presence_penalty).
	FrequencyPenalty, PresencePenalty float64
	// Bias is added to the logits of tokens.
	Bias map[int32]float64

	// Form: the answer is JSON of this form, and ends with it; nil = any text. Its tokens are the model's.
	Form *jsonform.Form

	Stop []string // texts that end the answer; they are not part of it

	Logprobs    bool // the log-probability of each token is wanted
	TopLogprobs int  // and those of so many of the likeliest tokens
	// PromptLogprobs: the same of the prompt's tokens, of an engine with EngineOptions.Score.
	PromptLogprobs bool
}

// Limits of GenerateOptions.
const (
	MaxTemperature = 100
	MaxTopLogprobs = 100
	MaxPenalty     = 100 // of the three
)

// Check returns every option that is out of range, for a model of so many tokens.
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
		bad("top logprobs are %d: must lie in 0 to %d", o.TopLogprobs, MaxTopLogprobs)
	}
	first := int32(math.MaxInt32) // of the map the least, whatever its order
	for id, by := range o.Bias {
		if id < 0 || int(id) >= vocabulary || math.IsNaN(by) || math.IsInf(by, 0) {
			first = min(first, id)
		}
	}
	if first != math.MaxInt32 {
		bad("the bias of token %d is %v: want finite numbers for tokens 0 to %d", first, o.Bias[first], vocabulary-1)
	}
	return errors.Join(problems...)
}
