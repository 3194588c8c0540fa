package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/infer/jsonform"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
)

type generateOptions struct {
	model, adapter, prompt string
	instruction, input     string
	device, quantization   string
	workers                int
	json                   bool
	talk                   chatOptions
	form                   formOptions
	infer.GenerateOptions
}

func newGenerate(c *console) *cobra.Command {
	var o generateOptions
	cmd := &cobra.Command{
		Use:   "generate --model DIR [--adapter DIR] --prompt TEXT|--instruction TEXT|--messages FILE",
		Short: "Continue a text or answer a conversation",
		Long: `Continue a text, or with --chat answer a conversation. Without --model the base model is the one that the adapter
names. The chat template is the one saved beside the adapter, else the model's own; the answer stops where the template
ends a turn. Text in a message that looks like a special token is read as text, as in training.

Prompt an adapter in the form that it was trained on. With --instruction, and --input if the rows had one, the prompt is
written in Alpaca's template; --prompt is continued as it is.

On a terminal control characters are escaped, as \x1b; a pipe or file gets the answer byte for byte.

--json-object and --json-schema constrain the answer to JSON of that form. Exit code 1 if --max-tokens or --stop cut the
JSON off.`,
		Example: `  trainer generate --model embedded:stories260K --prompt "Once upon a time"
  trainer generate --model ./SmolLM2-135M --adapter runs/first --prompt - --max-tokens 200
  trainer generate --adapter runs/alpaca --instruction "Translate to French." --input "Good morning"
  trainer generate --model ./SmolLM2-135M --prompt "Dear" --temperature 0.8 --min-p 0.05 --repetition-penalty 1.1 --seed 7
  trainer generate --adapter runs/chat --chat --prompt "What is a tide?" --system "Answer in one sentence."
  trainer generate --model ./Qwen3-0.6B --messages talk.json --chat-template-kwargs '{"enable_thinking":false}' --stop User:
  trainer generate --model ./Qwen3-0.6B --chat --prompt "Anna is 31. Who is it, as JSON?" --json-schema person.json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd, c); err != nil {
				return err
			}
			return runGenerate(cmd, c, o)
		},
	}
	f := cmd.Flags()
	pathVar(cmd, &o.model, "model", "",
		"base model: a `DIR`, hub name, or embedded:NAME; default: the one that the adapter names")
	pathVar(cmd, &o.adapter, "adapter", "", "adapter `DIR` in PEFT's format")
	c.downloadFlag(cmd)
	f.StringVar(&o.prompt, "prompt", "", "`TEXT` to continue; - reads standard input")
	f.StringVar(&o.instruction, "instruction", "", "instruction to answer, a `TEXT` that is put into Alpaca's template")
	f.StringVar(&o.input, "input", "", "input that belongs to --instruction, a `TEXT`")
	o.talk.register(cmd)
	o.form.register(cmd)
	f.StringArrayVar(&o.Stop, "stop", nil, "stop before this `TEXT`; may be repeated")
	f.IntVar(&o.MaxTokens, "max-tokens", 64,
		fmt.Sprintf("limit of new tokens; the default is %d for conversations and JSON, less if the context is full",
			chatTokens))
	f.Float64Var(&o.Temperature, "temperature", 0, "sampling temperature; 0 takes the likeliest token")
	f.Float64Var(&o.TopP, "top-p", 1,
		"nucleus sampling: sample from the likeliest tokens whose probabilities add up to this")
	f.IntVar(&o.TopK, "top-k", 0, "sample from this many of the likeliest tokens; 0 = all")
	f.Float64Var(&o.MinP, "min-p", 0,
		"sample from tokens with at least this fraction of the likeliest token's probability; 0 = all")
	f.Float64Var(&o.RepetitionPenalty, "repetition-penalty", 1,
		"divide positive logits of tokens in prompt and answer by this, multiply negative ones; 1 = no penalty")
	f.Float64Var(&o.FrequencyPenalty, "frequency-penalty", 0,
		"subtract this from a token's logit for each occurrence in the answer")
	f.Float64Var(&o.PresencePenalty, "presence-penalty", 0, "subtract this from the logit of every token in the answer")
	f.Uint64Var(&o.Seed, "seed", 0, "sampling seed")
	workersVar(cmd, &o.workers)
	quantizationVar(cmd, &o.quantization)
	oldFlag(cmd, "quantize", "quantization")
	f.StringVar(&o.device, "device", "auto", "cpu, cuda, or auto (the GPU if there is one)")
	f.BoolVar(&o.json, "json", false, "print as JSON, at the end")
	return cmd
}

// check returns an error for bad flags, and reads the prompt.
func (o *generateOptions) check(cmd *cobra.Command, c *console) error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if o.model == "" && o.adapter == "" {
		bad("name a model: --model DIR, or an adapter that names its base model: --adapter DIR")
	}
	given := cmd.Flags().Changed
	prompt, messages, instruction := given("prompt"), given("messages"), given("instruction")
	switch {
	case instruction && (prompt || messages || given("chat") || given("system") || given("chat-template") ||
		given("chat-template-kwargs")):
		bad("--instruction is a prompt of its own, in the template of the format alpaca: leave out --prompt, " +
			"--messages, --chat, --system and --chat-template")
	case given("input") && !instruction:
		bad("--input: give the --instruction that it is the input of")
	case instruction && strings.TrimSpace(o.instruction) == "":
		bad("--instruction: the text is empty")
	case instruction:
		o.prompt = dataset.AlpacaPrompt(o.instruction, o.input)
	case prompt && messages:
		bad("--prompt and --messages: give one of them; --system adds a system message")
	case !prompt && !messages:
		bad("give a text to continue: --prompt TEXT, an instruction: --instruction TEXT, or a conversation to " +
			"answer: --messages FILE")
	}
	if err := infer.CheckStops(o.Stop); err != nil {
		bad("--stop: %w", err)
	}
	if o.MaxTokens < 1 {
		bad("--max-tokens %d: must be at least 1", o.MaxTokens)
	}
	if !(o.Temperature >= 0 && o.Temperature <= 100) {
		bad("--temperature %v: must lie in 0 to 100", o.Temperature)
	}
	if !(o.TopP > 0 && o.TopP <= 1) {
		bad("--top-p %v: must be above 0 and at most 1", o.TopP)
	}
	if !slices.Contains(graph.DeviceNames, o.device) {
		bad("--device %s: must be one of %s", o.device, strings.Join(graph.DeviceNames, ", "))
	}
	if o.TopK < 0 {
		bad("--top-k %d: must be 0 or more", o.TopK)
	}
	if !(o.MinP >= 0 && o.MinP <= 1) {
		bad("--min-p %v: must lie in 0 to 1", o.MinP)
	}
	if !(o.RepetitionPenalty > 0 && o.RepetitionPenalty <= infer.MaxPenalty) {
		bad("--repetition-penalty %v: must be above 0 and at most %d", o.RepetitionPenalty, infer.MaxPenalty)
	}
	for _, p := range []struct {
		name string
		v    float64
	}{{"frequency", o.FrequencyPenalty}, {"presence", o.PresencePenalty}} {
		if !(p.v >= -infer.MaxPenalty && p.v <= infer.MaxPenalty) {
			bad("--%s-penalty %v: must lie in %d to %d", p.name, p.v, -infer.MaxPenalty, infer.MaxPenalty)
		}
	}
	if o.quantization != "" && !slices.Contains(quant.Names(), o.quantization) {
		bad("--quantization %s: must be one of %s", o.quantization, strings.Join(quant.Names(), ", "))
	}
	if err := errors.Join(problems...); err != nil {
		return usage(err)
	}
	if err := o.form.read(cmd, c, o.prompt, o.talk.messages); err != nil {
		return usage(err)
	}
	if o.prompt == "-" {
		text, err := io.ReadAll(c.in)
		if err != nil {
			return usage(fmt.Errorf("read the prompt: %w", err))
		}
		o.prompt = strings.TrimPrefix(string(text), "\uFEFF")
	}
	for _, t := range [][2]string{{"--instruction", o.instruction}, {"--input", o.input}, {"the prompt", o.prompt}} {
		if err := isText(t[0], t[1]); err != nil {
			return usage(err)
		}
	}
	if err := o.talk.read(cmd, c, o.prompt); err != nil {
		return usage(err)
	}
	if err := checkDevice(train.Spec{Device: o.device}); err != nil {
		return err
	}
	return checkAdapter(o.adapter)
}

// asTrained adds the system message of training to a conversation that has none, and warns if the prompt's format
// differs from training.
func (o *generateOptions) asTrained(c *console, g *infer.Generator) error {
	p, err := g.PromptFormat()
	if err != nil {
		return usage(err)
	}
	who, way := whose(o.adapter), wayText
	switch {
	case o.talk.conversation != nil:
		way = wayChat
		if _, has := o.talk.conversation.System(); !has && !o.talk.systemGiven {
			if system := trainedSystem(p); system != "" {
				o.talk.conversation.GiveSystem(system)
				c.say("system: %s, with which %s was trained; --system TEXT gives another, --system \"\" none",
					shown(system), who)
			}
		}
	case o.instruction != "":
		way = wayInstruction
	}
	note := askedOtherwise(p, who, way)
	if note == "" && o.talk.conversation != nil && o.talk.template != "" {
		writer, err := g.Chat(o.talk.template)
		if err != nil {
			return usage(errors.New(asFlag(err)))
		}
		note = otherTemplate(p, who, writer)
	}
	if way.asked == wayText.asked && note == "" {
		note = withoutSeparator(p, who, o.prompt)
	}
	if note != "" {
		c.say("note: %s", note)
	}
	return nil
}

func runGenerate(cmd *cobra.Command, c *console, o generateOptions) (err error) {
	env := environment(c, o.workers)
	if err := findModel(cmd.Context(), c, env, &o.model, o.adapter); err != nil {
		return err
	}
	so := session.Options{Model: o.model, Device: o.device}
	if o.quantization != "" {
		scheme := quant.DefaultOf(o.quantization)
		so.Quantization = &scheme
	}
	g, err := infer.NewGenerator(cmd.Context(), so, o.adapter, env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	if err := o.asTrained(c, g); err != nil {
		return err
	}
	prompt, err := o.talk.promptOf(g, o.prompt)
	if err != nil {
		return err
	}
	o.Form = o.form.formOf(g)
	if (o.talk.conversation != nil || o.Form != nil) && !cmd.Flags().Changed("max-tokens") {
		o.MaxTokens = max(1, min(chatTokens, g.Base.Config.MaxPositions-len(prompt.IDs)))
	}
	ctx, stop := context.WithCancelCause(cmd.Context())
	defer stop(nil)
	var emit func(string)
	out := c.out // the answer is escaped on a terminal only; a file or another program gets its exact bytes
	if !isTerminal(c.out) {
		out = raw(c.out)
	}
	if !o.json {
		emit = func(piece string) {
			if _, err := fmt.Fprint(out, piece); err != nil {
				stop(fmt.Errorf("write the text: %w", err)) // nobody reads the rest
			}
		}
	}
	answer, err := g.Continue(ctx, prompt, o.GenerateOptions, emit)
	if cause := context.Cause(ctx); cause != nil && cmd.Context().Err() == nil {
		return cause
	}
	if err != nil {
		return err
	}
	if o.json {
		if err := writeJSON(c.out, answer); err != nil {
			return err
		}
	} else if !strings.HasSuffix(answer.Text, "\n") {
		fmt.Fprintln(out)
	}
	if cut := o.form.cut(answer, o.MaxTokens); cut != "" {
		return fmt.Errorf("generate: %s", cut)
	}
	return nil
}

// maxSchemaFile is the largest file of --json-schema in bytes.
const maxSchemaFile = 4 << 20

// formOptions holds the flags of generate that constrain the answer to JSON.
type formOptions struct {
	object bool
	file   string

	schema *jsonform.Schema // nil = any text
}

func (o *formOptions) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.object, "json-object", false, "constrain the answer to a JSON object")
	pathVar(cmd, &o.file, "json-schema", "",
		"constrain the answer to the JSON Schema in `FILE`; - reads standard input")
}

// read checks the flags and reads the schema. others lists the flags that may read standard input too.
func (o *formOptions) read(cmd *cobra.Command, c *console, others ...string) error {
	if !cmd.Flags().Changed("json-schema") {
		if o.object {
			o.schema = jsonform.Object()
		}
		return nil
	}
	if o.object {
		return errors.New("--json-object and --json-schema: give one of them")
	}
	if o.file == "-" && slices.Contains(others, "-") {
		return errors.New("--json-schema -: standard input is the prompt already; name a file")
	}
	if strings.HasPrefix(strings.TrimSpace(o.file), "{") {
		return fmt.Errorf("--json-schema %s: it takes the name of a file: write the schema into one", o.file)
	}
	text, err := o.text(c)
	if err == nil {
		o.schema, err = jsonform.Parse(text)
	}
	if err != nil {
		return fmt.Errorf("--json-schema %s: %w", o.file, err)
	}
	return nil
}

func (o *formOptions) text(c *console) ([]byte, error) {
	var r io.Reader = c.in
	if o.file != "-" {
		if err := regular.CheckPath(o.file); err != nil {
			return nil, err
		}
		f, err := os.Open(o.file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	text, err := io.ReadAll(io.LimitReader(r, maxSchemaFile+1))
	if err == nil && len(text) > maxSchemaFile {
		err = fmt.Errorf("it has more than %d MB", maxSchemaFile>>20)
	}
	return text, err
}

// formOf returns the JSON constraint for a model's answers, or nil for any text.
func (o *formOptions) formOf(g *infer.Generator) *jsonform.Form {
	if o.schema == nil {
		return nil
	}
	return &jsonform.Form{Schema: o.schema, Vocabulary: infer.Vocabulary(g.Base.Tokenizer)}
}

// cut returns an error text if the answer was cut off before its JSON was complete, else "".
func (o *formOptions) cut(answer infer.Generated, most int) string {
	switch {
	case o.schema == nil || answer.Stopped == infer.StoppedEnd:
		return ""
	case answer.Stopped == infer.StoppedText:
		return fmt.Sprintf("the JSON is not whole: --stop %q cut it off", answer.StoppedBy)
	}
	return fmt.Sprintf("the JSON is not whole: --max-tokens %d cut it off", most)
}
