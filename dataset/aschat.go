package dataset

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/text/chat"
)

// Values of Config.AsChat. The empty string means AsChatNo, with a warning if the model has a chat template.
const (
	AsChatAuto = "auto"
	AsChatYes  = "yes"
	AsChatNo   = "no"
)

// AsChatChoices lists the values of `dataset.as_chat`.
var AsChatChoices = []string{AsChatAuto, AsChatYes, AsChatNo}

// PlainTextWarning warns that rows of a prompt and an answer are trained as plain text although the model has a chat
// template.
const PlainTextWarning = "rows are trained as plain text although the model has a chat template: set " +
	"dataset.as_chat: yes to train them as conversations, or no to keep plain text without this warning"

// formatOf returns the named format with the fields that it reads under this configuration.
func (c Config) formatOf(name string) Format {
	f := Formats[name]
	if f.AsChat != nil && (c.AsChat == AsChatYes || c.AsChat == AsChatAuto) {
		return f.asConversations()
	}
	return f
}

// asConversations returns the format with its rows read as conversations. Such rows may have a system message and
// earlier turns, even if the plain-text form of the format does not read them.
func (f Format) asConversations() Format {
	f.Render, f.Chat = f.AsChat, true
	if f.Preference {
		return f
	}
	f.Separated, f.Trains = false, ""
	f.NoPrompt = "rows are conversations and dataset.train_on says what is trained"
	for _, r := range []Role{{Name: "system", Keys: systemKeys}, {Name: "history", Keys: []string{"history"}}} {
		if !f.hasRoles([]string{r.Name}) {
			r.Optional = true
			f.Roles = append(slices.Clip(f.Roles), r)
		}
	}
	return f
}

// talks reports whether rows of a prompt and an answer are trained as conversations. The value auto depends on whether
// the model's files hold a chat template.
func (c Config) talks() (bool, error) {
	if c.AsChat != AsChatAuto {
		return c.AsChat == AsChatYes, nil
	}
	sources, err := c.templates()
	if err != nil {
		return false, fmt.Errorf("find the chat template: %w", err)
	}
	_, _, err = sources.Choose(c.ChatTemplate)
	return !errors.Is(err, chat.ErrNoTemplate), nil // every other error is reported when the template is opened
}

// templates returns the chat templates of the model's files.
func (c Config) templates() (*chat.Sources, error) {
	if c.chat == nil {
		return &chat.Sources{}, nil
	}
	return c.chat.sources()
}

// settle returns the format that reads a file's rows. It needs the name of the format and looks up the model's
// templates.
func (c Config) settle(name string) (Format, error) {
	f := Formats[name]
	if f.AsChat != nil {
		talks, err := c.talks()
		if err != nil {
			return f, err
		}
		if talks {
			f = f.asConversations()
		}
	}
	var problems []error
	if c.AsChat == AsChatAuto {
		problems = c.validateRoles(name, f.roleNames())
	}
	if c.AsChat == AsChatAuto || name != c.Format {
		problems = append(problems, c.validateUse(name, f)...)
	}
	if len(problems) > 0 {
		return f, joinProblems(problems)
	}
	return f, nil
}

// completionAsChat makes a conversation: the prompt is the user message, the completion the assistant's answer.
func completionAsChat(f Fields, _ Config) (Example, error) {
	return f.dialogue([]string{"prompt"}, "completion")
}

// alpacaAsChat makes a conversation: instruction and input, joined by a line break, are the user message, and the
// output is the assistant's answer. LLaMA-Factory and ms-swift do the same.
func alpacaAsChat(f Fields, _ Config) (Example, error) {
	return f.dialogue([]string{"instruction", "input"}, "output")
}

// dialogue reads a conversation from columns: the system message, earlier turns, the user message and the answer. The
// user message joins the columns named by asked that are not blank.
func (f Fields) dialogue(asked []string, answer string) (Example, error) {
	system, err := f.Text("system")
	if err != nil {
		return Example{}, err
	}
	earlier, err := f.turns("history")
	if err != nil {
		return Example{}, err
	}
	var parts []string
	for _, role := range asked {
		text, err := f.Text(role)
		if err != nil {
			return Example{}, err
		}
		if len(asked) == 1 || strings.TrimSpace(text) != "" {
			parts = append(parts, text)
		}
	}
	said, err := f.Text(answer)
	if err != nil {
		return Example{}, err
	}
	if said == "" {
		return Example{Empty: dropEmptyAnswer}, nil
	}
	var turns []string
	for _, t := range earlier {
		turns = append(turns, t[0], t[1])
	}
	if strings.TrimSpace(system) == "" {
		system = ""
	}
	return Example{Conversation: chat.Dialogue(system, append(turns, strings.Join(parts, "\n"), said)...)}, nil
}

// noteAsChat records whether rows of a prompt and an answer are plain text or conversations.
func (r *Report) noteAsChat(cfg Config) error {
	if !slices.ContainsFunc(strings.Split(r.Format, ", "),
		func(name string) bool { return Formats[name].AsChat != nil }) {
		return nil
	}
	if (r.Chat.Conversations > 0 || r.talks) && Formats[r.Format].Talks != nil {
		r.AsChat = true // the rows are conversations already
		return nil
	}
	var err error
	if r.AsChat, err = cfg.talks(); err != nil || r.AsChat || cfg.AsChat != "" {
		return err
	}
	if sources, err := cfg.templates(); err == nil && len(sources.Templates) > 0 {
		r.Warning = PlainTextWarning
	}
	return nil
}

// Warnings lists, without repetition, the warnings of the report, of its sources and of the validation rows: what a
// person should look at before training.
func (r *Report) Warnings() []string {
	var all []string
	for _, part := range append([]*Report{r, r.Val}, r.Parts...) {
		if part == nil {
			continue
		}
		for _, warning := range []string{part.Warning, part.unreadWarning()} {
			if warning != "" && !slices.Contains(all, warning) {
				all = append(all, warning)
			}
		}
	}
	if r.Leaked > 0 {
		all = append(all, r.leak())
	}
	return all
}

// leak warns how many validation rows are also training rows, and how that changes the validation loss.
func (r *Report) leak() string {
	return fmt.Sprintf("leak: %d of the %d validation rows are training rows too; the validation loss is lower than "+
		"on new rows", r.Leaked, r.ValRows)
}

// otherForm returns a hint for an unknown field: the format has it when rows are conversations, or a field with a
// similar name.
func otherForm(format, role string, roles []string) string {
	if f := Formats[format]; f.AsChat != nil && f.asConversations().hasRoles([]string{role}) {
		return fmt.Sprintf("; with dataset.as_chat: yes it has %s too", role)
	}
	return didYouMean(role, roles)
}
