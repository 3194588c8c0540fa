package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/tokenizer"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/reward"
)

// looked holds what trainer init found out about a model and data.
type looked struct {
	family    string
	all       int64 // number of parameters
	context   int   // context length of the model in tokens
	templates []string
	hidden    int // numbers of the model's hidden state
	tokens    int // size of the tokenizer's vocabulary; 0 = there is no tokenizer
	declared  bool

	format        string
	hasForms      bool   // rows of a prompt and an answer can be plain text or conversations
	asChat        bool   // the rows are trained as conversations
	systems       bool   // the rows have system messages
	unread        string // keys of the rows that no format reads
	keys          []dataset.Unread
	template      string // value for dataset.chat_template if the model has no template
	rows          int
	lengths       []int // lengths of the rows in tokens, sorted
	longest       int
	labels        labels
	trained       string           // description of the trained part of a row
	trainedTokens int64            // trained tokens of all rows
	objectives    objective.Config // sections of a goal with a head
	reward        reward.Config    // of the goal reasoning
	dropped       int
	shown         []dataset.Inspected
}

// lookLength is the number of tokens of a row that are examined. Of a longer row only the length is known.
const lookLength = 32768

// lookAt reads the model's facts and the data's rows.
func lookAt(ctx context.Context, o *initOptions, env session.Env) (f *looked, err error) {
	base, err := session.OpenBase(ctx, o.model, env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, base.Close()) }()
	f = &looked{family: base.Config.ModelType, hidden: base.Config.HiddenSize, context: base.Config.MaxPositions,
		declared: base.Declared,
		all:      session.CountParameters(base.Config, base.Tensors()).All}
	if f.context <= 1 {
		f.context = lookLength
	}
	found, err := chat.Find(base.Folder)
	if err != nil {
		return nil, err
	}
	f.templates = found.Names()
	tok := base.Tokenizer
	own, folder, err := openTokenizer(ctx, o.model, env)
	switch {
	case err == nil:
		f.tokens = own.VocabSize()
	case errors.Is(err, tokenizer.ErrNone): // use the built-in model's tokenizer to recognise the rows' format
		if tok, folder, err = openTokenizer(ctx, session.EmbeddedPrefix+"stories260K", env); err != nil {
			return nil, err
		}
		if len(f.templates) > 0 {
			folder = base.Folder
		}
	default:
		return nil, err
	}
	s := train.DefaultSpec()
	s.BaseModel = o.model
	s.Dataset.Path = o.data
	o.rows(&s.Dataset)
	s.Dataset.MaxLength = lookLength // above the context length too, to measure the rows
	s.Dataset.OnTruncated = "keep"
	if err := useHead(ctx, o, &s, env); err != nil {
		return nil, usage(fmt.Errorf("init: --data %s: %w", words.ShellQuote(o.data), err))
	}
	o.samplesAnswers(&s)
	f.objectives = s.Objectives
	set, report, err := openData(ctx, s, tok, folder, env)
	// the error of a row does not wrap its cause
	if err != nil && strings.Contains(err.Error(), chat.ErrNoTemplate.Error()) {
		f.template = "chatml"
		s.Dataset.ChatTemplate = f.template
		set, report, err = openData(ctx, s, tok, folder, env)
	}
	if err == nil {
		set, report, err = o.withLabels(ctx, s, set, report, tok, folder, env)
	}
	if err != nil {
		return nil, usage(fmt.Errorf("init: --data %s: %s", words.ShellQuote(o.data), asInitFlags.Replace(err.Error())))
	}
	f.format, f.rows, f.trained, f.dropped = report.Format, set.Train.Len(), report.Trained, report.DroppedRows()
	f.longest, f.trainedTokens = report.LongestRow.Tokens, report.TrainedTokens
	f.labels = labels{report.Groups.Desirable, report.Groups.Undesirable}
	f.unread, f.keys = report.KeysNotRead(), report.Unread
	f.asChat, f.hasForms = report.AsChat, dataset.Formats[report.Format].AsChat != nil
	f.systems = report.Chat.SystemPrompts == "several" || report.Chat.System != o.system
	if f.rows == 0 {
		return nil, usage(fmt.Errorf("init: --data %s: no row is left to train on; trainer inspect data says why",
			words.ShellQuote(o.data)))
	}
	if err := f.goal(o); err != nil {
		return nil, err
	}
	if err := f.findReward(o, set.Train); err != nil {
		return nil, err
	}
	f.measure(set.Train, o.goal)
	if f.tokens > 0 {
		if f.shown, err = set.Look(ctx, 0, min(2, f.rows), tok); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// measure sets lengths: the tokens of each row, and of a pair those of its longer sequence, which max_length bounds.
func (f *looked) measure(rows dataset.Rows, goal string) {
	groups := goal == goalPairs || goal == goalVectors
	for i := range f.rows {
		n := rows.Length(i)
		if groups {
			n = 0
			row := rows.Row(i)
			for k := range row.Sequences() {
				ids, _ := row.Sequence(k)
				n = max(n, len(ids))
			}
		}
		f.lengths = append(f.lengths, n)
	}
	sort.Ints(f.lengths)
	if groups {
		f.longest = f.lengths[f.rows-1]
	}
}

// asInitFlags replaces keys of a configuration by the flags of init.
var asInitFlags = strings.NewReplacer("set dataset.format and dataset.fields", "give --format and --fields",
	"set dataset.format", "give --format",
	"set dataset.fields to", "give --fields", "set dataset.as_chat: yes", "give --as-chat yes", "dataset.as_chat is",
	"--as-chat is",
	"dataset.system does", "--system does", "dataset.fields", "--fields")

// goal determines the purpose of the rows, or returns an error if the rows do not serve the requested one.
func (f *looked) goal(o *initOptions) error {
	if ok, err := f.headGoal(o); ok {
		return err
	}
	for _, name := range goalNames {
		if slices.Contains(goals[name], f.format) {
			if f.asChat && name != goalPairs && name != goalReasoning && (o.goal == "" || o.goal == "chat") {
				o.goal = "chat"
				return nil
			}
			if o.goal != "" && o.goal != name && o.goal != "text" {
				return usage(fmt.Errorf("init: --goal %s: the rows of %s are of the format %s, which is for %s; %s "+
					"takes rows of the formats %s (docs/DATA.md)%s",
					o.goal, o.data, f.format, name, o.goal, strings.Join(goals[o.goal], ", "), f.otherForm(o.goal)))
			}
			if o.goal == "text" && name != "text" {
				return usage(fmt.Errorf("init: --goal text: the rows of %s are of the format %s, which is for %s; "+
					"text takes rows with the key text, or .txt files (docs/DATA.md)", o.data, f.format, name))
			}
			o.goal = name
			return nil
		}
	}
	return usage(fmt.Errorf("init: the rows of %s are of the format %s, which no goal uses", o.data, f.format))
}

// otherForm describes how rows serve a goal in their other form; "" = they do not.
func (f *looked) otherForm(goal string) string {
	if f.hasForms && goal == "chat" {
		return "; --as-chat yes makes conversations of these rows"
	}
	return ""
}

// askForm asks in which form to train rows of a prompt and an answer, and for a system message. again reports whether
// the answers differ from the options with which the rows were read.
func (f *looked) askForm(c *console, o *initOptions) (again bool, err error) {
	if o.lines == nil || !f.asChat || o.asChat != "" {
		return false, nil
	}
	ask := func(question string) (string, error) {
		fmt.Fprintf(c.err, "%s: ", question)
		line, err := o.lines.ReadString('\n')
		if err != nil && line == "" {
			fmt.Fprintln(c.err)
			return "", usage(errors.New("init: the answers end before the form of the rows is chosen"))
		}
		return strings.TrimSpace(line), nil
	}
	for o.asChat == "" {
		answer, err := ask("The model has a chat template, and the rows are prompts and answers. Train them as " +
			"conversations? yes, or no for plain text [yes]")
		if err != nil {
			return false, err
		}
		switch strings.ToLower(answer) {
		case "", "y", "yes", "true":
			o.asChat = dataset.AsChatYes
		case "n", "no", "false":
			o.asChat = dataset.AsChatNo
		default:
			fmt.Fprintf(c.err, "  %s: want yes or no\n", safetext.OneLine(answer))
		}
	}
	if o.asChat == dataset.AsChatNo {
		if o.system != "" {
			return false, usage(errors.New("init: --system is for conversations: leave it out, or answer yes"))
		}
		return true, nil
	}
	if o.system != "" || f.systems {
		return false, nil
	}
	if o.system, err = ask("System message of every conversation [none]"); err != nil {
		return false, err
	}
	return o.system != "", isText("the system message", o.system)
}

// formLine describes the form in which rows of a prompt and an answer are trained.
func (f *looked) formLine(o *initOptions) string {
	if f.asChat {
		text := "conversations in the model's chat template: the prompt is the user's message, the answer the " +
			"assistant's"
		if o.system != "" {
			text += "; system message " + shown(o.system)
		}
		return text + "; --as-chat no trains plain text"
	}
	if len(f.templates) > 0 {
		return "plain text, as --as-chat says; the model's chat template is not used"
	}
	return "plain text, since the model has no chat template; --as-chat yes would use ChatML, which the model must " +
		"learn first"
}

// modelLine returns, for example, "llama, 260032 parameters, 512 tokens, template none, context 512".
func (f *looked) modelLine() string {
	text := fmt.Sprintf("%s, %s parameters, context %s tokens", f.family, words.Count(f.all), words.Count(f.context))
	if f.tokens > 0 {
		text += fmt.Sprintf(", vocabulary %s", words.Count(f.tokens))
	} else {
		text += ", no tokenizer in its folder"
	}
	if len(f.templates) > 0 {
		text += ", chat template " + strings.Join(f.templates, " and ")
	} else {
		text += ", no chat template"
	}
	if f.declared {
		text += "; its weights are not here yet"
	}
	return safetext.OneLine(text)
}

func (f *looked) dataLine() string {
	text := fmt.Sprintf("%s row%s, format %s", words.Count(f.rows), plural(f.rows), f.format)
	if f.dropped > 0 {
		text += fmt.Sprintf(", %d more dropped", f.dropped)
	}
	if f.tokens > 0 {
		text += fmt.Sprintf("; p50 %d tokens, p99 %d, max %d", f.part(0.5), f.part(0.99), f.longest)
	}
	return safetext.OneLine(text)
}

// part returns the quantile p of the rows' lengths.
func (f *looked) part(p float64) int {
	return f.lengths[min(len(f.lengths)-1, int(p*float64(len(f.lengths))))]
}
