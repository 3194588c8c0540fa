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

// promptWay is a way in which a prompt is made.
type promptWay struct {
	asked string   // what the prompt is
	like  []string // kinds of training prompts that it is like
}

var (
	wayChat        = promptWay{"conversations in a chat template", []string{dataset.PromptChat}}
	wayInstruction = promptWay{"Alpaca's text", []string{"alpaca"}}
	wayText        = promptWay{"a text as it is", []string{"completion", "text"}}
)

// trainedOn says for each kind of training prompts what they were and how generate asks alike, the likeliest first. Of
// other kinds, whose texts and ids may be anything, nothing is said.
var trainedOn = []struct{ kind, what, remedy string }{
	{dataset.PromptChat, "conversations in a chat template", "generate --chat asks as in training"},
	{"alpaca", "Alpaca's text", "generate --instruction TEXT asks as in training"},
	{"completion", "prompts and answers as plain text", "generate --prompt TEXT without --chat asks as in training"},
	{"text", "plain text", "generate --prompt TEXT without --chat asks as in training"},
}

// askedOtherwise says in one line that who was trained on other prompts than it is asked with, and how to ask as in
// training. "" = the prompts are alike, or nothing is known of the training.
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

// otherTemplate says that who was trained with another chat template than the one that writes its conversations. "" =
// it was trained with this one, or nothing is known.
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

// withoutSeparator says that a prompt does not end as those of training did; "" = it does, or nothing is known.
func withoutSeparator(p *dataset.PromptFormat, who, prompt string) string {
	if p == nil || !p.Only("completion") || p.Separator == "" || strings.HasSuffix(prompt, p.Separator) {
		return ""
	}
	return fmt.Sprintf("%s was trained on prompts that end with the separator %s, and this one does not: add it", who,
		shown(p.Separator))
}

// shown is a text of a file in quotes, shortened, for one line of a terminal.
func shown(s string) string {
	const most = 100
	if r := []rune(s); len(r) > most {
		return strconv.Quote(string(r[:most])) + "…"
	}
	return strconv.Quote(s)
}

// trainedSystem is the system message that who answers with where the caller gives none.
func trainedSystem(p *dataset.PromptFormat) string {
	if p == nil || !slices.Contains(p.Prompts, dataset.PromptChat) {
		return ""
	}
	return p.System
}

// whose names an adapter for a line, or the model where there is none.
func whose(adapter string) string {
	if adapter == "" {
		return "the model"
	}
	return "adapter " + safetext.OneLine(adapter)
}
