package dataset

import (
	"encoding/json"
	"fmt"
	"strings"
)

// alpaca reads {instruction, input, output}, or Dolly's {instruction, context, response}, and writes the prompt text of
// Stanford Alpaca. The input may be empty or absent. A system text replaces the introduction. history holds earlier
// [instruction, output] turns, as in LLaMA-Factory; their outputs are trained too.
var alpaca = Format{
	Roles: []Role{
		{Name: "instruction", Keys: []string{"instruction"}},
		{Name: "input", Keys: []string{"input", "context"}, Optional: true},
		{Name: "output", Keys: []string{"output", "response"}},
		{Name: "system", Keys: systemKeys, Optional: true},
		{Name: "history", Keys: []string{"history"}, Optional: true},
	},
	Render: renderAlpaca,
	AsChat: alpacaAsChat,
}

const (
	alpacaIntro = "Below is an instruction that describes a task. Write a response that appropriately completes " +
		"the request.\n\n"
	alpacaIntroInput = "Below is an instruction that describes a task, paired with an input that provides further " +
		"context. Write a response that appropriately completes the request.\n\n"
)

func renderAlpaca(f Fields, _ Config) (Example, error) {
	texts := map[string]string{}
	for _, role := range []string{"instruction", "input", "output", "system"} {
		text, err := f.Text(role)
		if err != nil {
			return Example{}, err
		}
		texts[role] = text
	}
	if texts["output"] == "" {
		return Example{Empty: dropEmptyAnswer}, nil
	}
	earlier, err := f.turns("history")
	if err != nil {
		return Example{}, err
	}
	intro, ask := alpacaIntro, alpacaAsk(texts["instruction"], "")
	if strings.TrimSpace(texts["input"]) != "" {
		intro, ask = alpacaIntroInput, alpacaAsk(texts["instruction"], texts["input"])
	}
	if len(earlier) > 0 {
		intro = alpacaIntro // the input belongs to the last turn only
	}
	if strings.TrimSpace(texts["system"]) != "" {
		intro = texts["system"] + "\n\n"
	}
	var ex Example
	prompt := intro
	for _, turn := range earlier {
		ex.Segments = append(ex.Segments, Segment{Text: prompt + alpacaAsk(turn[0], "")},
			Segment{Text: turn[1], Trained: true, End: true})
		prompt = "\n\n"
	}
	ex.Segments = append(ex.Segments, Segment{Text: prompt + ask}, Segment{Text: texts["output"], Trained: true})
	ex.EOS = true
	return ex, nil
}

// AlpacaPrompt returns the prompt of a row of the format alpaca: everything before its answer.
func AlpacaPrompt(instruction, input string) string {
	if strings.TrimSpace(input) == "" {
		return alpacaIntro + alpacaAsk(instruction, "")
	}
	return alpacaIntroInput + alpacaAsk(instruction, input)
}

func alpacaAsk(instruction, input string) string {
	if input != "" {
		instruction += "\n\n### Input:\n" + input
	}
	return "### Instruction:\n" + instruction + "\n\n### Response:\n"
}

// turns reads a list of [instruction, output] pairs of strings.
func (f Fields) turns(role string) ([][2]string, error) {
	if !f.Present(role) {
		return nil, nil
	}
	key := f.keys[role]
	wrong := func(place string, raw json.RawMessage) error {
		return fmt.Errorf("%s is %s, want a list of [instruction, output] pairs of texts", place, kindOf(raw))
	}
	raw, _ := f.row.lookup(key)
	if kindOf(raw) != "a list" {
		return nil, wrong(fmt.Sprintf("field %q", key), raw)
	}
	var turns [][2]string
	for i, pair := range splitList(raw) {
		place := fmt.Sprintf("%s[%d]", key, i)
		if kindOf(pair) != "a list" {
			return nil, wrong(place, pair)
		}
		parts := splitList(pair)
		if len(parts) != 2 {
			return nil, fmt.Errorf("%s has %d elements, want [instruction, output]", place, len(parts))
		}
		var turn [2]string
		for j, part := range parts {
			text := Fields{row: Object{keys: []string{place}, values: []json.RawMessage{part}},
				keys: map[string]string{"text": place}}
			if kindOf(part) == "null" {
				return nil, wrong(place, part)
			}
			s, err := text.Text("text")
			if err != nil {
				return nil, err
			}
			turn[j] = s
		}
		turns = append(turns, turn)
	}
	return turns, nil
}

// answered returns an example with a masked prompt and a trained answer, which the end token closes.
func answered(prompt, answer string) Example {
	if answer == "" {
		return Example{Empty: dropEmptyAnswer}
	}
	return Example{Segments: []Segment{{Text: prompt}, {Text: answer, Trained: true}}, EOS: true}
}
