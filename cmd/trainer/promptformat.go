package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/text/chat"
)

// promptWay is how a command made its prompt.
type promptWay struct {
	asked string   // description of the prompt
	like  []string // kinds of training prompts that match it
}

var (
	wayChat        = promptWay{"conversations in a chat template", []string{dataset.PromptChat}}
	wayInstruction = promptWay{"Alpaca's text", []string{"alpaca"}}
	wayText        = promptWay{"a text as it is", []string{"completion", "text"}}
)

// trainedOn describes each kind of training prompts and how to ask in the same format, the likeliest kind first. Other
// kinds, whose texts and ids may be anything, are not listed.
var trainedOn = []struct{ kind, what, remedy string }{
	{dataset.PromptChat, "conversations in a chat template", "generate --chat asks as in training"},
	{"alpaca", "Alpaca's text", "generate --instruction TEXT asks as in training"},
	{"completion", "prompts and answers as plain text", "generate --prompt TEXT without --chat asks as in training"},
	{"text", "plain text", "generate --prompt TEXT without --chat asks as in training"},
}

// askedOtherwise returns one line that warns that an adapter or model (who) was trained on prompts of another format,
// and how to use that format. It returns "" if the formats match or the training's format is unknown.
func askedOtherwise(p *dataset.PromptFormat, who string, way promptWay) string {
	if p == nil || slices.ContainsFunc(way.like, p.Has) {
		return ""
	}
	for _, kind := range p.Prompts {
		if !slices.ContainsFunc(trainedOn, func(t struct{ kind, what, remedy string }) bool { return t.kind == kind }) {
			return ""
		}
	}
	for _, t := range trainedOn {
		if p.Has(t.kind) {
			return fmt.Sprintf("%s was trained on %s, and is asked with %s: %s", who, t.what, way.asked, t.remedy)
		}
	}
	return ""
}

// otherTemplate returns one line that warns that an adapter or model (who) was trained with another chat template than
// the one in use. It returns "" if the templates match or training's is unknown.
func otherTemplate(p *dataset.PromptFormat, who string, writer *chat.Chat) string {
	if p == nil || p.TemplateSHA256 == "" || writer == nil {
		return ""
	}
	plain, _ := writer.Used()
	if sum := sha256.Sum256([]byte(plain.Source)); hex.EncodeToString(sum[:]) == p.TemplateSHA256 {
		return ""
	}
	return fmt.Sprintf("%s was trained with another chat template than %s: leave out --chat-template to take the one "+
		"beside the adapter", who, safetext.OneLine(plain.Name))
}

// withoutSeparator returns one line that warns that a prompt does not end as the training prompts did. It returns "" if
// it does or nothing is known.
func withoutSeparator(p *dataset.PromptFormat, who, prompt string) string {
	if p == nil || !p.Only("completion") || p.Separator == "" || strings.HasSuffix(prompt, p.Separator) {
		return ""
	}
	return fmt.Sprintf("%s was trained on prompts that end with the separator %s, and this one does not: add it", who,
		shown(p.Separator))
}

// shown quotes and shortens a file's text for one line of a terminal.
func shown(s string) string {
	const most = 100
	if r := []rune(s); len(r) > most {
		return strconv.Quote(string(r[:most])) + "…"
	}
	return strconv.Quote(s)
}

// trainedSystem returns the system message that is used by default.
func trainedSystem(p *dataset.PromptFormat) string {
	if p == nil || !slices.Contains(p.Prompts, dataset.PromptChat) {
		return ""
	}
	return p.System
}

// whose names an adapter, or the model if adapter is empty, for use in a sentence.
func whose(adapter string) string {
	if adapter == "" {
		return "the model"
	}
	return "adapter " + safetext.OneLine(adapter)
}
