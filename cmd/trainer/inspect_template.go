package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/jinja"
)

// renderedJSON is one line of inspect template --json: a text with the code points of its generation blocks, or the
// template's error for the conversation.
type renderedJSON struct {
	Text       *string  `json:"text,omitempty"`
	Generation [][2]int `json:"generation,omitempty"`
	Error      string   `json:"error,omitempty"`
}

// templateOptions holds the flags of inspect template.
type templateOptions struct {
	file, conversations string
	model               string
	bos, eos, now       string
	prompt, asJSON      bool
}

func newInspectTemplate(c *console) *cobra.Command {
	var o templateOptions
	cmd := &cobra.Command{
		Use:   "template --model DIR | --file T.jinja --conversations C.jsonl",
		Short: "Analyse a model's chat template, or render conversations with one",
		Long: `With --model: print what ends a turn, how loss masks are found, and which messages the chat template writes.

With --file: render conversations as Hugging Face transformers does. A conversation is a list of messages, or an object
with messages whose other keys (tools, documents and so on) become variables of the template. The file holds one
conversation per line (JSONL), one, or a JSON list of them. bos_token and eos_token are undefined unless --bos and --eos
set them.`,
		Example: `  trainer inspect template --model ./SmolLM2-135M-Instruct
  trainer inspect template --file chat_template.jinja --conversations chats.jsonl --generation-prompt
  trainer inspect template --file chat_template.jinja --conversations - --bos '<s>' --eos '</s>' --json < chats.jsonl`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.model != "" && (o.file != "" || o.conversations != "") {
				return usage(
					errors.New(
						"--model tells of the model's own template, --file renders with another: give one of them"))
			}
			if o.model != "" {
				return o.describeModel(cmd, c)
			}
			if o.file == "" || o.conversations == "" {
				return usage(
					errors.New("name a template and conversations: --file T.jinja --conversations C.jsonl (- is " +
						"standard input)"))
			}
			return o.run(c, cmd.Flags().Changed)
		},
	}
	pathVar(cmd, &o.model, "model", "", "analyse the chat template of this model: a `DIR`, hub name, or embedded:NAME")
	c.downloadFlag(cmd)
	pathVar(cmd, &o.file, "file", "", "`FILE` with the template")
	pathVar(cmd, &o.conversations, "conversations", "",
		"`FILE` with the conversations, JSON or JSONL; - reads standard input")
	cmd.Flags().BoolVar(&o.prompt, "generation-prompt", false,
		"end with the beginning of an answer (add_generation_prompt)")
	cmd.Flags().StringVar(&o.bos, "bos", "", "bos_token: a `TEXT` such as <s>")
	cmd.Flags().StringVar(&o.eos, "eos", "", "eos_token: a `TEXT` such as </s>")
	cmd.Flags().StringVar(&o.now, "now", "",
		"`TIME` that strftime_now returns, such as 2025-03-14T15:09:26; default: now")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print one JSON object per conversation")
	return cmd
}

func (o *templateOptions) run(c *console, given func(flag string) bool) error {
	now, err := parseNow(o.now)
	if err != nil {
		return usage(err)
	}
	source, err := readText(c, o.file)
	if err != nil {
		return usage(err)
	}
	template, err := jinja.Compile(source)
	if err != nil {
		return usage(fmt.Errorf("compile %s: %w", o.file, err))
	}
	text, err := readText(c, o.conversations)
	if err != nil {
		return usage(err)
	}
	conversations, err := readConversations(text)
	if err != nil {
		return usage(fmt.Errorf("read conversations: %s: %w", o.conversations, err))
	}
	w := bufio.NewWriter(coloured(c.out))
	refused, unread := 0, 0
	for i, conv := range conversations {
		var out jinja.Output
		err := conv.err
		if err == nil {
			conv.vars.Set("add_generation_prompt", jinja.Bool(o.prompt))
			if given("bos") {
				conv.vars.Set("bos_token", jinja.Str(o.bos))
			}
			if given("eos") {
				conv.vars.Set("eos_token", jinja.Str(o.eos))
			}
			if out, err = template.Render(conv.vars, jinja.Options{Now: now}); err != nil {
				refused++
			}
		} else {
			unread++
		}
		if o.asJSON {
			err = writeRendered(w, out, err)
		} else {
			showRendered(w, i, out, err, mayColour(c.out))
			err = nil
		}
		if err != nil {
			return err
		}
	}
	if refused > 0 {
		c.say("the template refuses %d of %d conversations", refused, len(conversations))
	}
	if unread > 0 {
		c.say("%d of %d conversations cannot be read", unread, len(conversations))
	}
	return w.Flush()
}

func parseNow(s string) (time.Time, error) {
	if s == "" {
		return time.Now(), nil
	}
	for _, layout := range []string{"2006-01-02T15:04:05", time.DateTime, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("--now %s: write a time such as 2025-03-14T15:09:26", words.ShellQuote(s))
}

// givenConversation is a conversation of the file, or the error in it.
type givenConversation struct {
	vars *jinja.Dict
	err  error
}

// readConversations reads one JSON list of conversations, one conversation, or one conversation per line. It returns an
// error if no line is JSON.
func readConversations(text string) ([]givenConversation, error) {
	var all []givenConversation
	add := func(v jinja.Value, err error, at string) {
		var vars *jinja.Dict
		if err == nil {
			vars, err = templateVars(v)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", at, err)
		}
		all = append(all, givenConversation{vars, err})
	}
	text = strings.TrimPrefix(text, "\ufeff")
	if v, err := jinja.FromJSON([]byte(text)); err == nil {
		items := []jinja.Value{v}
		if list, ok := v.(*jinja.List); ok && !isMessages(list) {
			items = list.Items
		}
		for i, item := range items {
			add(item, nil, fmt.Sprintf("conversation %d", i))
		}
		return all, nil
	}
	read := 0
	for i, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		v, err := jinja.FromJSON([]byte(line))
		if err == nil {
			read++
		}
		add(v, err, fmt.Sprintf("line %d", i+1))
	}
	switch {
	case len(all) == 0:
		return nil, errors.New("there is no conversation")
	case read == 0:
		return nil, all[0].err
	}
	return all, nil
}

// isMessages reports whether a list holds the messages of one conversation.
func isMessages(list *jinja.List) bool {
	for _, item := range list.Items {
		if d, ok := item.(*jinja.Dict); ok {
			if _, ok := d.Get("role"); ok {
				return true
			}
		}
	}
	return false
}

// templateVars returns the variables that transformers passes for a conversation: tools and documents are None if it
// has none.
func templateVars(v jinja.Value) (*jinja.Dict, error) {
	vars := jinja.NewDict()
	vars.Set("messages", v)
	vars.Set("tools", jinja.None{})
	vars.Set("documents", jinja.None{})
	if d, ok := v.(*jinja.Dict); ok {
		messages, ok := d.Get("messages")
		if !ok {
			return nil, errors.New("the object has no messages")
		}
		v = messages
		for i := range d.Len() {
			key, value := d.At(i)
			vars.Set(string(key.(jinja.Str)), value)
		}
	}
	if _, ok := v.(*jinja.List); !ok {
		return nil, errors.New("messages must be a list of objects with role and content")
	}
	return vars, nil
}

func writeRendered(w io.Writer, out jinja.Output, refused error) error {
	line := renderedJSON{Text: &out.Text, Generation: out.CodePoints}
	if refused != nil {
		line = renderedJSON{Error: refused.Error()}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(line); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// showRendered writes a conversation as text. The content of {% generation %} blocks has the colour of trained tokens.
func showRendered(w io.Writer, i int, out jinja.Output, refused error, colour bool) {
	fmt.Fprintf(w, "conversation %d\n", i)
	if refused != nil {
		fmt.Fprintf(w, "refused: %s\n\n", plainText(refused.Error()))
		return
	}
	at := 0
	for _, s := range out.Generation {
		if !colour || out.Captured || s[0] < at {
			break
		}
		fmt.Fprint(w, plainText(out.Text[at:s[0]]), styleTrained, plainText(out.Text[s[0]:s[1]]), styleOff)
		at = s[1]
	}
	fmt.Fprintf(w, "%s\n\n", plainText(out.Text[at:]))
}

// modelTemplatesJSON is the output of inspect template --model --json.
type modelTemplatesJSON struct {
	Model     string             `json:"model"`
	Named     []string           `json:"named"`     // all templates in the model's files
	Templates []chat.Description `json:"templates"` // the templates that conversations use
}

// describeModel describes a model's chat templates.
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

// asFlag replaces the configuration keys in an error of package chat by flags.
func asFlag(err error) string {
	return strings.NewReplacer("dataset.chat_template", "--chat-template", " (dataset.allow_special allows it)", "").
		Replace(err.Error())
}
