package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/filename"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/vision"
)

// chatCommand is a line that begins with a slash.
type chatCommand struct {
	usage, does string
	run         func(t *talk, ctx context.Context, argument string) error
}

// chatCommands maps names to commands.
var chatCommands map[string]chatCommand

func init() { // in init, because help lists the map that holds it
	chatCommands = map[string]chatCommand{
		"adapter": {"/adapter [NAME|none]", "let another adapter answer, or the base model; without a name, list them",
			(*talk).switchTo},
		"exit":  {"/exit", "end, as Ctrl-D does", func(*talk, context.Context, string) error { return errQuit }},
		"help":  {"/help", "list the commands", (*talk).help},
		"image": {"/image FILE", "show an image to the model with the next message; needs --images", (*talk).addImage},
		"reset": {"/reset", "begin a new conversation; the system message stays", (*talk).reset},
		"retry": {"/retry", "answer the last message again; with a temperature above 0, by the next seed",
			(*talk).retry},
		"save": {"/save FILE", "add the conversation to a JSONL file that training reads (format messages)",
			(*talk).save},
		"set": {"/set [KEY VALUE]",
			"change how tokens are chosen, such as /set temperature 0.2; without a key, list all", (*talk).set},
		"system": {"/system [TEXT|none]", "change the system message; without a text, show it", (*talk).setSystem},
		"undo":   {"/undo", "take back the last message and its answer", (*talk).undo},
	}
}

func (t *talk) command(ctx context.Context, line string) error {
	name, argument, _ := strings.Cut(strings.TrimPrefix(line, "/"), " ")
	c, ok := chatCommands[name]
	if !ok {
		if slices.Contains([]string{"quit", "bye", "q", "close", "end"}, name) {
			return usage(fmt.Errorf("there is no command /%s; /exit ends, as Ctrl-D does", name))
		}
		var names []string
		for n := range chatCommands {
			names = append(names, n)
		}
		sort.Strings(names)
		if near := words.Nearest(name, names); near != "" {
			return usage(fmt.Errorf("there is no command /%s; the nearest is /%s", name, near))
		}
		return usage(fmt.Errorf("there is no command /%s; /help lists them", name))
	}
	return c.run(t, ctx, strings.TrimSpace(argument))
}

func (t *talk) help(context.Context, string) error {
	var names []string
	for n := range chatCommands {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		t.c.say("  %-22s %s", chatCommands[n].usage, fold(chatCommands[n].does, foldWidth(t.c.err), 25))
	}
	t.c.say("%s", fold(`A line that ends with \ goes on in the next; so do lines between """ and """. Ctrl-C stops `+
		`an answer, Ctrl-D ends.`, foldWidth(t.c.err), 0))
	return nil
}

func (t *talk) switchTo(_ context.Context, name string) error {
	names := t.adapters()
	switch {
	case name == "":
		t.c.say("%s answers; there are %s", t.name(), strings.Join(append(names, "none"), ", "))
		return nil
	case name == "none" && !slices.Contains(t.engine.Adapters(), ""):
		return usage(errors.New("with --adapter-only the base model does not answer by itself"))
	case name == "none":
		name = ""
	case !slices.Contains(names, name):
		return usage(fmt.Errorf("there is no adapter %s; there are %s", name,
			strings.Join(append(names, "none"), ", ")))
	}
	if err := t.use(name); err != nil {
		return usage(err)
	}
	t.c.say("%s answers from here on", t.name())
	return nil
}

// addImage adds an image to the next message.
func (t *talk) addImage(_ context.Context, file string) error {
	if !t.images {
		return usage(errors.New("/image needs a chat with --images"))
	}
	file = filename.ExpandHome(file)
	data, err := dataset.ReadImage(file)
	if err == nil {
		_, err = vision.Look(data)
	}
	if err != nil {
		return usage(fmt.Errorf("image %s: %w", file, err))
	}
	t.shown = append(t.shown, file)
	t.c.say("the next message shows %s", strings.Join(t.shown, ", "))
	return nil
}

func (t *talk) reset(context.Context, string) error {
	t.turns, t.shown = nil, nil
	t.c.say("a new conversation")
	return nil
}

func (t *talk) undo(context.Context, string) error {
	if len(t.turns) == 0 {
		return usage(errors.New("there is nothing to take back"))
	}
	t.turns = t.turns[:t.last()]
	t.c.say("taken back; %d messages are left", len(t.turns))
	return nil
}

func (t *talk) retry(ctx context.Context, _ string) error {
	if len(t.turns) == 0 {
		return usage(errors.New("there is no message to answer again"))
	}
	before := slices.Clone(t.turns)
	t.turns = t.turns[:t.last()+1]
	if t.options.Temperature > 0 {
		t.options.Seed++
	}
	if err := t.answer(ctx); err != nil {
		t.turns = before
		return err
	}
	if len(t.turns) < len(before) { // stopped before the first token
		t.turns = before
	}
	return nil
}

func (t *talk) setSystem(_ context.Context, text string) error {
	switch text {
	case "":
		if t.system == "" {
			t.c.say("there is no system message")
		} else {
			t.c.say("system: %s", t.system)
		}
		return nil
	case "none":
		text = ""
	}
	t.system, t.systemGiven = text, true
	t.c.say("the system message is changed from here on")
	return nil
}

// settings lists what /set can change.
var settings = []struct {
	name string
	of   func(o *infer.GenerateOptions) any
}{
	{"temperature", func(o *infer.GenerateOptions) any { return &o.Temperature }},
	{"top_p", func(o *infer.GenerateOptions) any { return &o.TopP }},
	{"top_k", func(o *infer.GenerateOptions) any { return &o.TopK }},
	{"min_p", func(o *infer.GenerateOptions) any { return &o.MinP }},
	{"repetition_penalty", func(o *infer.GenerateOptions) any { return &o.RepetitionPenalty }},
	{"presence_penalty", func(o *infer.GenerateOptions) any { return &o.PresencePenalty }},
	{"frequency_penalty", func(o *infer.GenerateOptions) any { return &o.FrequencyPenalty }},
	{"seed", func(o *infer.GenerateOptions) any { return &o.Seed }},
	{"max_tokens", func(o *infer.GenerateOptions) any { return &o.MaxTokens }},
}

func (t *talk) set(_ context.Context, argument string) error {
	words := strings.Fields(strings.Replace(argument, "=", " ", 1))
	if len(words) == 0 {
		for _, s := range settings {
			switch v := s.of(&t.options).(type) {
			case *float64:
				t.c.say("  %-20s %v", s.name, *v)
			case *int:
				t.c.say("  %-20s %d", s.name, *v)
			case *uint64:
				t.c.say("  %-20s %d", s.name, *v)
			}
		}
		return nil
	}
	var names []string
	for _, s := range settings {
		names = append(names, s.name)
	}
	i := slices.Index(names, words[0])
	if i < 0 {
		return usage(fmt.Errorf("there is no setting %s; there are %s", words[0], strings.Join(names, ", ")))
	}
	if len(words) != 2 {
		return usage(fmt.Errorf("want a name and a value, such as /set temperature 0.2"))
	}
	changed := t.options
	var err error
	switch v := settings[i].of(&changed).(type) {
	case *float64:
		*v, err = strconv.ParseFloat(words[1], 64)
	case *int:
		*v, err = strconv.Atoi(words[1])
	case *uint64:
		*v, err = strconv.ParseUint(words[1], 10, 64)
	}
	if err != nil {
		return usage(fmt.Errorf("%s: %s is not a number that it takes", words[0], words[1]))
	}
	if changed.MaxTokens < 1 {
		return usage(fmt.Errorf("max_tokens is %d: must be at least 1", changed.MaxTokens))
	}
	if err := changed.Check(t.engine.Base.Config.VocabSize); err != nil {
		return usage(err)
	}
	t.options = changed
	t.c.say("%s is %s from here on", words[0], words[1])
	return nil
}

// save appends the conversation as a row to a file and keeps the file's rows.
func (t *talk) save(_ context.Context, path string) error {
	if path == "" {
		return usage(errors.New("want a file: /save talks.jsonl"))
	}
	if len(t.turns) == 0 {
		return usage(errors.New("there is nothing to save yet"))
	}
	path = filename.ExpandHome(path)
	if err := atomicfile.CheckOwn(path, "a file of conversations", `"messages"`); err != nil {
		return usage(err)
	}
	var messages []turn
	if t.system != "" {
		messages = append(messages, turn{Role: "system", Content: t.system})
	}
	var row bytes.Buffer
	enc := json.NewEncoder(&row)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(map[string][]turn{"messages": append(messages, t.turns...)}); err != nil {
		return err
	}
	if err := addLine(path, row.Bytes()); err != nil {
		return usage(fmt.Errorf("save the conversation: %w", err))
	}
	t.c.say("added to %s: dataset: {path: %s, format: messages}", path, path)
	return nil
}

// addLine appends a line to a text file; it adds a line break first if the file's last line has none.
func addLine(path string, line []byte) (err error) {
	f, err := atomicfile.Open(path, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if end > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, end-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			line = append([]byte("\n"), line...)
		}
	}
	if _, err := f.Write(line); err != nil {
		return errors.Join(err, f.Truncate(end)) // remove a partly written row
	}
	return nil
}
