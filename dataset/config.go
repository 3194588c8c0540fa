package dataset

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sort"
	"strings"

	"github.com/tierlora/tierlora/dataset/source"
	"github.com/tierlora/tierlora/internal/keys"
	"github.com/tierlora/tierlora/text/chat"
)

// Config is the `dataset:` section of a run's YAML.
type Config struct {
	// Path of the rows: a file (JSON, JSONL, CSV, TSV, text, Parquet or Arrow; all but the last two also gzip or zstd),
	// a folder of them or of datasets' save_to_disk, a pattern such as data/*.jsonl, a data set of the Hugging Face hub
	// such as org/name or org/name@revision, or embedded:gsm8k_300.jsonl.
	Path string `yaml:"path" form:"path" instead:"sources" resume:"compared"`
	// Sources lists several data sources with their weights; it replaces Path.
	Sources []Source `yaml:"sources,omitempty" resume:"compared"`
	// Format of the rows. Empty or auto means that it is detected from the keys of a file's first row.
	Format string `yaml:"format" resume:"compared"`
	// MaxLength is the maximum number of tokens of a sequence, including BOS and EOS. A longer conversation is
	// truncated after its last whole turn that fits, any other row at MaxLength; OnTruncated chooses otherwise.
	MaxLength int `yaml:"max_length" default:"512" range:"[2,1048576]" resume:"compared"`
	// ValSplit is the fraction of the rows held out for validation, chosen by the seed.
	ValSplit float64 `yaml:"val_split" range:"[0,1)" resume:"compared"`
	// ValPath is the path of a validation set in the same format; it replaces ValSplit.
	ValPath string `yaml:"val_path" form:"path" resume:"free"`
	// ValSources lists several sources of validation rows; it replaces ValPath.
	ValSources []Source `yaml:"val_sources,omitempty" resume:"free"`
	// Shuffle draws a new order of the rows for every epoch, from the seed and the epoch.
	Shuffle bool `yaml:"shuffle" default:"true" resume:"compared"`
	// Packing puts several rows into one sequence of MaxLength tokens, or of fewer if there are too few rows to fill
	// it. No row attends to another.
	Packing bool `yaml:"packing" resume:"compared"`
	// PadTo is how rows are padded without packing: none puts rows end to end without padding, max_length pads each row
	// to max_length.
	PadTo string `yaml:"pad_to" default:"none" choices:"none max_length" resume:"compared"`
	// TrainOnPrompt also trains on the tokens of the prompt. By default only the answer is trained.
	TrainOnPrompt bool `yaml:"train_on_prompt" resume:"compared"`
	// Fields maps a format's fields to the keys of the file: {prompt: question, completion: answer}. Dots lead into
	// nested values, and a number is an index into a list: instances.0.input.
	Fields map[string]string `yaml:"fields,omitempty" resume:"compared"`
	// Separator is the text between prompt and completion (format completion).
	Separator string `yaml:"separator" default:"\n" resume:"compared"`
	// OnTruncated is what happens to a row longer than MaxLength. keep truncates it, and drops it if no trained token
	// is left. drop removes it. error ends the run. chunk divides a text into several rows and loses no token. auto
	// means chunk for the format text and keep for all others.
	OnTruncated string `yaml:"on_truncated" default:"auto" choices:"auto chunk keep drop error" resume:"compared"`
	// TextBy is what makes a row of a text file (.txt): a line, a paragraph (separated by blank lines) or the whole
	// document.
	TextBy string `yaml:"text_by" default:"line" resume:"compared"`
	// AsChat decides whether rows with a prompt and an answer (formats completion, alpaca and pairs of texts) are
	// trained as conversations: a user message and the assistant's answer in the model's chat template. yes trains
	// conversations, no trains plain text, and auto means yes if the model has a chat template or chat_template names
	// one. Empty means no; the run then warns if the model has a chat template.
	AsChat string `yaml:"as_chat,omitempty" resume:"compared"`
	// System is the text of the system message for every conversation that has none of its own. To read it from a
	// column of the rows, name that column in fields: {system: KEY}.
	System string `yaml:"system,omitempty" resume:"compared"`
	// ChatTemplate is the template of conversations (formats messages, sharegpt and chat_completion, and rows that
	// as_chat makes conversations): a .jinja file, the name of one of the model's own templates, or chatml, vicuna or
	// zephyr. Empty means the model's own, chosen as transformers does.
	ChatTemplate string `yaml:"chat_template" resume:"compared"`
	// TrainOn is the trained part of a conversation: assistant (all messages of RolesToTrain), last (only the last of
	// them) or all (every token). A message's own train or weight overrides it.
	TrainOn string `yaml:"train_on" default:"assistant" choices:"assistant last all" resume:"compared"`
	// RolesToTrain lists the roles whose messages are trained.
	RolesToTrain []string `yaml:"roles_to_train" default:"assistant" resume:"compared"`
	// TrainReasoning also trains on the reasoning of trained messages: reasoning_content and the text inside <think>.
	TrainReasoning bool `yaml:"train_reasoning" default:"true" resume:"compared"`
	// TrainToolCalls also trains on the tool calls of trained messages.
	TrainToolCalls bool `yaml:"train_tool_calls" default:"true" resume:"compared"`
	// SplitTurns is for templates that render a turn differently once messages follow it: Qwen3 drops its reasoning.
	// auto makes each such turn, with the conversation before it, a row of its own. always does so for every trained
	// turn. never rejects such conversations.
	SplitTurns string `yaml:"split_turns" default:"auto" choices:"auto always never" resume:"compared"`
	// AllowSpecial lists the special tokens that stay special inside the text of messages; all other special tokens are
	// read there as plain text. all allows every special token.
	AllowSpecial []string `yaml:"allow_special" resume:"compared"`
	// Weights takes the column weight of rows and the weight of messages (also loss_weight) as factors of the loss of
	// their trained tokens, 0 to 1000: 0 is not trained, and a message's factor multiplies its row's. The loss is still
	// divided by the number of trained tokens. By default a message's weight is 0 or 1, and a column weight is not read.
	Weights bool `yaml:"weights" resume:"compared"`
	// CacheDir is a folder that keeps tokenised files by content hash, and the log-probabilities of references
	// (training.precompute). auto uses the user's cache folder, for files of 64 MB and more, and for references of a
	// million tokens and more. Empty disables the cache.
	CacheDir string `yaml:"cache_dir" default:"auto" form:"path" resume:"free"`
	// Streaming reads and tokenises the rows during training, for data too large to be kept as tokens. Nothing is
	// written to disk, and rows are shuffled and packed within windows of 4096. It needs training.max_steps, as the
	// rows are not counted, and it finds a malformed row only when it reads it.
	Streaming bool `yaml:"streaming" resume:"compared"`

	// Seed decides the split and the order of rows: the run's seed, set by the caller.
	Seed uint64 `yaml:"-"`
	// Chat finds the model's chat templates when the first conversation is read; set by the caller. nil = there are
	// none.
	Chat func() (*chat.Sources, error) `yaml:"-"`
	// Images reads the images of rows; set by the caller. nil = the model reads none, and rows with images are refused.
	Images Images `yaml:"-"`
	// Workers is how many rows are tokenised in parallel; 0 = one for each core. It changes no result.
	Workers int `yaml:"-"`
	// Progress is called several times a second while data is read; nil = not called.
	Progress func(Progress) `yaml:"-"`
	// EndOfEpoch is called with the report of each epoch of a stream, from 1, when the epoch ends; nil = not called.
	EndOfEpoch func(epoch int, r *Report) `yaml:"-"`

	// Preferences reports whether the run's objective learns from preferences. If so, rows that could be preference
	// pairs or labelled answers are read as such. Set by the caller.
	Preferences bool `yaml:"-"`
	// Unpaired makes two labelled rows of each preference pair, its chosen and its rejected answer. The rows of a data
	// set of pairs are then ordered as in TRL: all chosen answers of 1,000 pairs, then their rejected ones. Set by the
	// caller.
	Unpaired bool `yaml:"-"`
	// Mismatched is the number of consecutive labelled rows that exchange their answers: each row becomes a group of its
	// own sequence and its prompt with the answer of the row before it, the first row with that of the last. 0 = rows
	// stay single sequences. It needs Unpaired. Set by the caller.
	Mismatched int `yaml:"-"`
	// Aim is what the run's objective wants of rows beside their tokens. Set by the caller.
	Aim Aim `yaml:"-"`
	// Prompts reports that the run samples answers itself: of each row only the prompt is tokenised, and its columns are
	// kept for rewards. Set by the caller.
	Prompts bool `yaml:"-"`
	// PathFolder and ValPathFolder are the folders with the files of hub data sets, set by the caller.
	PathFolder, ValPathFolder string `yaml:"-"`

	span source.Span // the rows to read of the current file
	chat *chatOnce
	look *look // the rows to show to a person; nil: all rows are tokenised
}

// Values of Config.PadTo and Config.OnTruncated.
const (
	PadNone      = "none"
	PadMaxLength = "max_length"
	PadLongest   = "longest" // written by older configurations; means none

	TruncatedAuto  = "auto"
	TruncatedChunk = "chunk"
	TruncatedKeep  = "keep"
	TruncatedDrop  = "drop"
	TruncatedError = "error"
)

// Default returns the section with every key at its default.
func Default() (c Config) {
	keys.SetDefaults(&c)
	return c
}

// Choices returns the valid values of keys that name an entry of a table.
func (Config) Choices() map[string][]string {
	return map[string][]string{
		"format":         formatChoices(),
		"as_chat":        append([]string{""}, AsChatChoices...),
		"text_by":        source.TextUnits,
		"roles_to_train": chat.Roles(),
	}
}

const maxMaxLength = 1 << 20 // the upper end of the range of max_length

// formatChoices returns the valid values of a key that names a format: a format, auto, or the empty string.
func formatChoices() []string { return append([]string{"", FormatAuto}, formatNames()...) }

func (c Config) workers() int {
	if c.Workers > 0 {
		return c.Workers
	}
	return runtime.GOMAXPROCS(0)
}

// Validate reports every problem of the section at once. It reads no file.
func (c Config) Validate() []error {
	if c.PadTo == PadLongest {
		c.PadTo = PadNone // the older name of none
	}
	problems := keys.Check("dataset.", c)
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf("dataset."+format, args...)) }

	if c.Path == "" && len(c.Sources) == 0 {
		bad("path is missing: name a data file, a folder or a hub data set such as org/name, or list dataset.sources")
	}
	if c.ValSplit > 0 && c.ValPath != "" {
		bad("val_split and val_path are both set: keep one")
	}
	if c.ValSplit > 0 && len(c.ValSources) > 0 {
		bad("val_split and val_sources are both set: keep one")
	}
	if c.ValPath != "" && c.ValPath == c.Path {
		bad("val_path is the training file itself: use val_split to hold out a part of it")
	}
	problems = append(problems, c.validateChat()...)
	problems = append(problems, c.validateSources()...)
	problems = append(problems, c.validateStreaming()...)
	if c.Format == "" || c.Format == FormatAuto {
		problems = append(problems, c.validateRoles("", allRoles())...)
		return problems
	}
	if _, ok := Formats[c.Format]; !ok {
		return problems // keys.Check reports these problems
	}
	f := c.formatOf(c.Format)
	problems = append(problems, c.validateRoles(c.Format, f.roleNames())...)
	if c.AsChat != AsChatAuto || f.AsChat == nil { // the model's files decide auto
		problems = append(problems, c.validateUse(c.Format, f)...)
	}
	return problems
}

// validateRoles checks the keys and values of Fields; format "" stands for any format.
func (c Config) validateRoles(format string, roles []string) []error {
	var problems []error
	byKey := map[string]string{}
	for _, role := range c.fieldRoles() {
		key := c.Fields[role]
		switch {
		case !slices.Contains(roles, role) && format == "":
			problems = append(problems, fmt.Errorf("dataset.fields: no format has a field %q%s", role,
				didYouMean(role, roles)))
		case !slices.Contains(roles, role):
			problems = append(problems, fmt.Errorf("dataset.fields: format %s has no field %q, it has %s%s", format,
				role,
				strings.Join(roles, ", "), otherForm(format, role, roles)))
		case key == "":
			problems = append(problems, fmt.Errorf("dataset.fields.%s is empty: name a key of the file", role))
		case byKey[key] != "":
			problems = append(problems, fmt.Errorf("dataset.fields: %s and %s both name the key %q", byKey[key], role,
				key))
		default:
			byKey[key] = role
		}
	}
	return problems
}

// validateUse rejects keys that have no effect with the format.
func (c Config) validateUse(name string, f Format) []error {
	var problems []error
	if c.OnTruncated == TruncatedChunk && name != "text" {
		problems = append(problems,
			fmt.Errorf("dataset.on_truncated: format %s has no text that could be chunked; write "+
				"keep, drop or error", name))
	}
	if c.Separator != Default().Separator && !f.Separated {
		problems = append(problems, fmt.Errorf("dataset.separator does nothing with format %s: remove it", name))
	}
	if !f.Chat && f.Talks == nil {
		remedy := "which has no conversations: remove it"
		if f.AsChat != nil {
			remedy = "whose rows are trained as plain text: remove it, or set dataset.as_chat: yes to train them as " +
				"conversations"
		}
		for _, key := range c.chatKeys() {
			problems = append(problems, fmt.Errorf("dataset.%s does nothing with format %s, %s", key, name, remedy))
		}
		if c.AsChat == AsChatYes {
			problems = append(problems,
				fmt.Errorf("dataset.as_chat is yes, and rows of the format %s have no prompt and "+
					"answer to make a conversation of: remove it", name))
		}
	}
	if c.TrainOnPrompt && f.NoPrompt != "" {
		problems = append(problems,
			fmt.Errorf("dataset.train_on_prompt does nothing with format %s, where %s: remove it",
				name, f.NoPrompt))
	}
	return problems
}

// fieldRoles lists the mapped roles in sorted order.
func (c Config) fieldRoles() []string {
	roles := make([]string, 0, len(c.Fields))
	for role := range c.Fields {
		roles = append(roles, role)
	}
	sort.Strings(roles)
	return roles
}

func joinProblems(problems []error) error {
	if len(problems) == 1 {
		return problems[0]
	}
	return errors.Join(problems...)
}
