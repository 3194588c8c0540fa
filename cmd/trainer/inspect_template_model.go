package main

import (
	"bufio"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/text/chat"
)

// modelTemplatesJSON is the answer of inspect template --model --json.
type modelTemplatesJSON struct {
	Model     string             `json:"model"`
	Named     []string           `json:"named"`     // all templates of the model's files
	Templates []chat.Description `json:"templates"` // those that conversations are written by
}

// describeModel tells what the chat template of a model does.
func (o *templateOptions) describeModel(cmd *cobra.Command, c *console) error {
	tok, folder, err := openTokenizer(cmd.Context(), o.model, environment(c, 0))
	if err != nil {
		return err
	}
	sources, err := chat.Find(folder)
	if err != nil {
		return fmt.Errorf("model %s: %w", o.model, err)
	}
	found, err := chat.New(sources, "", tok, chat.DefaultOptions())
	if err != nil {
		return usage(errors.New(asFlag(err)))
	}
	answer := modelTemplatesJSON{o.model, sources.Names(), found.Describe()}
	if o.asJSON {
		return writeJSON(c.out, answer)
	}
	w := bufio.NewWriter(c.out)
	fmt.Fprintf(w, "model       %s, templates %s\n", o.model, strings.Join(answer.Named, ", "))
	for _, d := range answer.Templates {
		fmt.Fprintf(w, "\ntemplate    %s, %d bytes (sha256 %.12s)\n", d.Name, d.Bytes, d.SHA256)
		end := strconv.Quote(d.EndOfTurn)
		if d.EndOfTurn == "" {
			end = "the token that begins the next message"
		}
		fmt.Fprintf(w, "turn ends   %s; generation stops at %s\n", end, orNone(d.Stops))
		fmt.Fprintf(w, "prompt      %q\n", d.Prompt)
		fmt.Fprintf(w, "masks       %s\n", d.Masks)
		fmt.Fprintf(w, "contents    %s\n", d.Contents)
		fmt.Fprintf(w, "writes      %s\nleaves out  %s\n", orNone(d.Writes), orNone(d.Omits))
	}
	return w.Flush()
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}

// asFlag is an error of package chat, which speaks of a configuration's keys, for a command with flags.
func asFlag(err error) string {
	return strings.NewReplacer("dataset.chat_template", "--chat-template", " (dataset.allow_special allows it)", "").Replace(err.Error())
}
