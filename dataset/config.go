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
	// Path of the rows: a file (JSON, JSONL, CSV, TSV, text, Parquet or Arrow; all but the last two also gzip or zstd), a
	// folder of them or of datasets' save_to_disk, a pattern such as data/*.jsonl, a data set of the Hugging Face hub such
	// as org/name or org/name@revision, or embedded:gsm8k_300.jsonl.
	Path string `yaml:"path" form:"path" instead:"sources" resume:"compared"`
	// Sources are several sources of rows with their weights, instead of Path.
	Sources []Source `yaml:"sources,omitempty" resume:"compared"`
	// Format of the rows. Empty or auto means that it is detected from the keys of a file's first row.
	Format string `yaml:"format" resume:"compared"`
	// MaxLength is the most tokens of a sequence, BOS and EOS counted; a longer row is cut at its end.
	MaxLength int `yaml:"max_length" default:"512" range:"[2,1048576]" resume:"compared"`
	// ValSplit is the part of the rows held out for validation, chosen by the seed.
	ValSplit float64 `yaml:"val_split" range:"[0,1)" resume:"compared"`
	// ValPath is the path of validation rows of the same format, instead of ValSplit.
	ValPath string `yaml:"val_path" form:"path" resume:"free"`
	// ValSources are several sources of validation rows, instead of ValPath.
	ValSources []Source `yaml:"val_sources,omitempty" resume:"free"`
	// Shuffle the rows anew in every epoch, by seed and epoch.
	Shuffle bool `yaml:"shuffle" default:"true" resume:"compared"`
	// Packing puts several rows into one sequence of MaxLength tokens, or of fewer where the rows are too few to fill it;
	// no row attends to another.
	Packing bool `yaml:"packing" resume:"compared"`
	// PadTo is what unpacked rows are padded to: none, they lie end to end, or max_length, the most that a batch can take.
	PadTo string `yaml:"pad_to" default:"none" choices:"none max_length" resume:"compared"`
	// TrainOnPrompt trains the prompt's tokens too; otherwise only the answer's are.
	TrainOnPrompt bool `yaml:"train_on_prompt" resume:"compared"`
	// Fields maps a format's fields to the keys of the file: {prompt: question, completion: answer}. A key inside
	// another is written with dots, a place in a list as a number: instances.0.input.
	Fields map[string]string `yaml:"fields,omitempty" resume:"compared"`
	// Separator is the text between prompt and completion (format completion).
	Separator string `yaml:"separator" default:"\n" resume:"compared"`
	// OnTruncated is what becomes of a row longer than MaxLength: keep the cut row if a trained token is left, drop
	// it, stop with an error, or chunk it, which makes a text several rows of which no token is lost. auto chunks rows of
	// the format text and keeps the cut ones of others.
	OnTruncated string `yaml:"on_truncated" default:"auto" choices:"auto chunk keep drop error" resume:"compared"`
	// TextBy is what a row of a text file (.txt) is: a line, a paragraph (what stands between blank lines), or the whole
	// document.
	TextBy string `yaml:"text_by" default:"line" resume:"compared"`
	// AsChat says whether rows of a prompt and an answer (formats completion and alpaca) are trained as conversations, a
	// user message and the assistant's answer in the model's chat template: yes, no (as plain text), or auto, which is
	// yes where the model has a chat template or chat_template names one. Empty means no, and the run warns where the
	// model has a chat template.
	AsChat string `yaml:"as_chat,omitempty" resume:"compared"`
	// System is the text of the system message of every conversation that brings none of its own. A column of the rows
	// is named in fields instead: {system: KEY}.
	System string `yaml:"system,omitempty" resume:"compared"`
	// ChatTemplate is the template of conversations (formats messages, sharegpt and chat_completion, and rows that as_chat
	// makes conversations): a .jinja file, the name of one of the model's own templates, or chatml, vicuna or zephyr.
	// Empty is the model's own, chosen as transformers does.
	ChatTemplate string `yaml:"chat_template" resume:"compared"`
	// TrainOn says what of a conversation is trained: assistant (all messages of RolesToTrain), last (the last of them)
	// or all (every token). A message's own train or weight overrides it.
	TrainOn string `yaml:"train_on" default:"assistant" choices:"assistant last all" resume:"compared"`
	// RolesToTrain are the roles whose messages are trained.
	RolesToTrain []string `yaml:"roles_to_train" default:"assistant" resume:"compared"`
	// TrainReasoning trains the reasoning of trained messages too: reasoning_content, and what stands in <think>.
	TrainReasoning bool `yaml:"train_reasoning" default:"true" resume:"compared"`
	// TrainToolCalls trains the calls of tools in trained messages too.
	TrainToolCalls bool `yaml:"train_tool_calls" default:"true" resume:"compared"`
	// SplitTurns is about templates that write a turn otherwise once messages follow (Qwen3 drops its reasoning): auto
	// renders the conversation up to each such turn as a row of its own, always does so for every trained turn, never
	// makes such a conversation an error.
	SplitTurns string `yaml:"split_turns" default:"auto" choices:"auto always never" resume:"compared"`
	// AllowSpecial are special tokens that stay special inside of messages' texts, where they are read as plain text
	// otherwise; all allows every one.
	AllowSpecial []string `yaml:"allow_special" resume:"compared"`
	// CacheDir is a folder that keeps tokenised files by content hash; auto is one in the user's cache folder, for files
	// of 64 MB and more. Empty keeps none.
	CacheDir string `yaml:"cache_dir" default:"auto" form:"path" resume:"free"`
	// Streaming reads and tokenises the rows as training goes, for data that is too large to be kept as tokens or must
	// not be: nothing is written to disk, and rows are shuffled and packed within windows of 4096. It needs
	// training.max_steps, as the rows are not counted, and finds a malformed row only when it gets there.
	Streaming bool `yaml:"streaming" resume:"compared"`

	// Seed of the split and of the order: the run's seed, set by the caller.
	Seed uint64 `yaml:"-"`
	// Chat finds the model's chat templates when the first conversation is met, set by the caller; nil: there are none.
	Chat func() (*chat.Sources, error) `yaml:"-"`
	// Workers is how many rows are tokenised at a time; 0 = one for each core. It changes no result.
	Workers int `yaml:"-"`
	// Progress is told how far reading is, several times a second; nil = nobody is.
	Progress func(Progress) `yaml:"-"`
	// EndOfEpoch is given the report of each epoch of a stream, from 1, when it ends; nil = nobody is.
	EndOfEpoch func(epoch int, r *Report) `yaml:"-"`

	// Preferences tells that the run's objective learns from preferences, so that rows which could be pairs or labelled
	// answers are taken for them; set by the caller.
	Preferences bool `yaml:"-"`
	// PathFolder and ValPathFolder are where the files of hub data sets lie, set by the caller.
	PathFolder, ValPathFolder string `yaml:"-"`

	span source.Span // of the rows of the file at hand
	chat *chatOnce
	look *look // rows that are shown to a person; nil: all are tokenised
}

// Values of Config.PadTo and Config.OnTruncated.
const (
	PadNone      = "none"
	PadMaxLength = "max_length"
	PadLongest   = "longest" // of older configurations, means none

	TruncatedAuto  = "auto"
	TruncatedChunk = "chunk"
	TruncatedKeep  = "keep"
	TruncatedDrop  = "drop"
	TruncatedError = "error"
)

// Default is the section with nothing set.
func Default() (c Config) {
	keys.SetDefaults(&c)
	return c
}

// Choices are the values of keys that name an entry of a table.
func (Config) Choices() map[string][]string {
	return map[string][]string{
		"format":         formatChoices(),
		"as_chat":        append([]string{""}, AsChatChoices...),
		"text_by":        source.TextUnits,
		"roles_to_train": chat.Roles(),
	}
}

const maxMaxLength = 1 << 20 // the range of max_length

// formatChoices are the values of a key that names a format: a format, auto, or nothing.
func formatChoices() []string { return append([]string{"", FormatAuto}, formatNames()...) }

func (c Config) workers() int {
	if c.Workers > 0 {
		return c.Workers
	}
	return runtime.GOMAXPROCS(0)
}

// Validate reports every problem of the section at once, without reading a file.
func (c Config) Validate() []error {
	if c.PadTo == PadLongest {
		c.PadTo = PadNone // its old name
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
		return problems // keys.Check says so
	}
	f := c.formatOf(c.Format)
	problems = append(problems, c.validateRoles(c.Format, f.roleNames())...)
	if c.AsChat != AsChatAuto || f.AsChat == nil { // auto is decided by the model's files
		problems = append(problems, c.validateUse(c.Format, f)...)
	}
	return problems
}

// validateRoles checks the keys and values of Fields; format "" stands for any.
func (c Config) validateRoles(format string, roles []string) []error {
	var problems []error
	byKey := map[string]string{}
	for _, role := range c.fieldRoles() {
		key := c.Fields[role]
		switch {
		case !slices.Contains(roles, role) && format == "":
			problems = append(problems, fmt.Errorf("dataset.fields: no format has a field %q%s", role, didYouMean(role, roles)))
		case !slices.Contains(roles, role):
			problems = append(problems, fmt.Errorf("dataset.fields: format %s has no field %q, it has %s%s", format, role, strings.Join(roles, ", "), otherForm(format, role, roles)))
		case key == "":
			problems = append(problems, fmt.Errorf("dataset.fields.%s is empty: name a key of the file", role))
		case byKey[key] != "":
			problems = append(problems, fmt.Errorf("dataset.fields: %s and %s both name the key %q", byKey[key], role, key))
		default:
			byKey[key] = role
		}
	}
	return problems
}

// validateUse refuses keys that would do nothing with the format.
func (c Config) validateUse(name string, f Format) []error {
	var problems []error
	if c.OnTruncated == TruncatedChunk && name != "text" {
		problems = append(problems, fmt.Errorf("dataset.on_truncated: format %s has no text that could be chunked; write keep, drop or error", name))
	}
	if c.Separator != Default().Separator && !f.Separated {
		problems = append(problems, fmt.Errorf("dataset.separator does nothing with format %s: remove it", name))
	}
	if !f.Chat && f.Talks == nil {
		remedy := "which has no conversations: remove it"
		if f.AsChat != nil {
			remedy = "whose rows are trained as plain text: remove it, or set dataset.as_chat: yes to train them as conversations"
		}
		for _, key := range c.chatKeys() {
			problems = append(problems, fmt.Errorf("dataset.%s does nothing with format %s, %s", key, name, remedy))
		}
		if c.AsChat == AsChatYes {
			problems = append(problems, fmt.Errorf("dataset.as_chat is yes, and rows of the format %s have no prompt and answer to make a conversation of: remove it", name))
		}
	}
	if c.TrainOnPrompt && f.NoPrompt != "" {
		problems = append(problems, fmt.Errorf("dataset.train_on_prompt does nothing with format %s, where %s: remove it", name, f.NoPrompt))
	}
	return problems
}

// fieldRoles lists the mapped roles in a fixed order.
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
