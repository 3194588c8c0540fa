package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/jinja"
)

// maxMessages is the largest file of messages in bytes, far more than any model's context.
const maxMessages = 64 << 20

// chatTokens is the default of --max-tokens for conversations, whose answers end by themselves.
const chatTokens = 512

// chatOptions holds the flags of generate that turn the prompt into a conversation. Each of them implies --chat.
type chatOptions struct {
	chat                               bool
	messages, system, template, kwargs string
	images                             []string // files

	conversation *chat.Conversation // nil = the prompt is plain text
	systemGiven  bool               // --system was set, if only to ""
}

func (o *chatOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.chat, "chat", false, "answer the prompt as a user's message, by the model's own chat template")
	pathVar(cmd, &o.messages, "messages", "", "conversation to answer: a JSON `FILE` with a list of messages, or "+
		"with an object of messages and tools; - reads standard input")
	f.StringVar(&o.system, "system", "",
		"`TEXT` of a system message that comes first; left out, the one that the adapter was trained with, \"\" none")
	pathVar(cmd, &o.template, "chat-template", "",
		"chat template: a .jinja `FILE`, or the name of one of the model's or "+strings.Join(chat.BuiltIn(), ", "))
	f.StringArrayVar(&o.images, "image", nil, "image `FILE` that the prompt is about, before its text; may be repeated")
	f.StringVar(&o.kwargs, "chat-template-kwargs", "",
		"`JSON` object of more variables for the template, such as {\"enable_thinking\": false}")
}

// read checks the flags and builds the conversation.
func (o *chatOptions) read(cmd *cobra.Command, c *console, prompt string) error {
	given := cmd.Flags().Changed
	for _, name := range []string{"messages", "system", "chat-template", "chat-template-kwargs", "image"} {
		if given(name) {
			if given("chat") && !o.chat {
				return fmt.Errorf("--%s and --chat=false contradict each other", name)
			}
			o.chat = true
		}
	}
	if !o.chat {
		return nil
	}
	o.systemGiven = given("system")
	if given("chat-template") && o.template == "" {
		return errors.New("--chat-template: the name is empty")
	}
	raw := chat.Raw{Key: "messages", System: o.system, Vars: []byte(o.kwargs), WithImages: true}
	where := "--prompt"
	if given("messages") && given("image") {
		return errors.New("--image goes with --prompt: in --messages write a part " +
			"{\"type\": \"image\", \"image\": \"FILE\"}")
	}
	if given("messages") {
		where = "--messages " + o.messages
		if err := o.readMessages(c, &raw); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
	} else {
		message := []map[string]any{{"role": "user", "content": prompt}}
		if len(o.images) > 0 {
			message[0]["content"] = withImages(o.images, prompt)
		}
		var err error
		if raw.Messages, err = json.Marshal(message); err != nil {
			return err
		}
	}
	if given("chat-template-kwargs") {
		if err := checkKwargs(raw.Vars); err != nil {
			return err
		}
	}
	conv, err := chat.Read(raw)
	if err != nil {
		return errors.New(where + ": " + strings.Replace(err.Error(), "the row has a field system too",
			"--system gives one too", 1))
	}
	last := len(conv.Messages) - 1
	if conv.Messages[last].Role == "assistant" {
		if raw.System != "" {
			last--
		}
		return fmt.Errorf(
			"%s: messages[%d], the last one, is the assistant's own: end with the message that is to be answered",
			where, last)
	}
	o.conversation = conv
	return nil
}

// withImages returns a message's parts: images, then a text.
func withImages(files []string, text string) (parts []map[string]string) {
	for _, file := range files {
		parts = append(parts, map[string]string{"type": "image", "image": file})
	}
	return append(parts, map[string]string{"type": "text", "text": text})
}

func checkKwargs(raw []byte) error {
	v, err := jinja.FromJSON(raw)
	if err != nil {
		return fmt.Errorf("--chat-template-kwargs: %w", err)
	}
	if _, ok := v.(*jinja.Dict); !ok {
		return errors.New("--chat-template-kwargs: want a JSON object, such as {\"enable_thinking\": false}")
	}
	if _, err := chat.Vars(raw); err != nil {
		return fmt.Errorf("--chat-template-kwargs: %w", err)
	}
	return nil
}

// readMessages reads a list of messages, or {"messages", "tools", "chat_template_kwargs"}.
func (o *chatOptions) readMessages(c *console, raw *chat.Raw) error {
	text, err := o.open(c)
	if err != nil {
		return err
	}
	text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")))
	switch {
	case len(text) == 0:
		return errors.New("it is empty: want a JSON list of messages")
	case text[0] == '[':
		raw.Messages = text
		return nil
	case text[0] != '{':
		return errors.New("want a JSON list of messages, or an object with messages and tools")
	}
	var object map[string]json.RawMessage
	if err := jsonerr.Unmarshal(text, &object); err != nil {
		return err
	}
	known := map[string]*[]byte{"messages": &raw.Messages, "tools": &raw.Tools, "chat_template_kwargs": &raw.Vars}
	keys := make([]string, 0, len(object))
	for key := range object {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	for _, key := range keys {
		to := known[key]
		switch {
		case to == nil:
			return fmt.Errorf("unknown key %q: an object has messages, tools and chat_template_kwargs", key)
		case string(object[key]) == "null":
		case key == "chat_template_kwargs" && o.kwargs != "":
			return errors.New("chat_template_kwargs is given here and by --chat-template-kwargs: keep one")
		default:
			*to = object[key]
		}
	}
	if raw.Messages == nil {
		return errors.New("the object has no messages")
	}
	return nil
}

func (o *chatOptions) open(c *console) ([]byte, error) {
	var r io.Reader = c.in
	if o.messages != "-" {
		if err := regular.CheckPath(o.messages); err != nil {
			return nil, err
		}
		f, err := os.Open(o.messages)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	text, err := io.ReadAll(io.LimitReader(r, maxMessages+1))
	if err == nil && len(text) > maxMessages {
		err = fmt.Errorf("it has more than %d MB", maxMessages>>20)
	}
	return text, err
}

// imageFiles reads files, or data: URIs.
func imageFiles(refs []string) (files [][]byte, err error) {
	for _, file := range refs {
		data, err := dataset.ReadImage(file)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", file, err)
		}
		files = append(files, data)
	}
	return files, nil
}

// promptOf returns the prompt that the model continues.
func (o *chatOptions) promptOf(g *infer.Generator, text string) (infer.Prompt, error) {
	if o.conversation == nil {
		return g.Text(text), nil
	}
	p, err := g.ChatPrompt(o.conversation, o.template)
	if err != nil {
		return p, usage(errors.New(asFlag(err)))
	}
	if len(o.conversation.Images) == 0 {
		return p, nil
	}
	files, err := imageFiles(o.conversation.Images)
	if err != nil {
		return p, usage(err)
	}
	c := dataset.Default()
	if p, err = g.ShowImages(p, files, c.Folder()); err != nil {
		return p, usage(err)
	}
	return p, nil
}
