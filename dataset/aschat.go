package dataset

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/text/chat"
)

// Values of Config.AsChat. Empty means AsChatNo, with a warning where the model has a chat template.
const (
	AsChatAuto = "auto"
	AsChatYes  = "yes"
	AsChatNo   = "no"
)

// AsChatChoices lists the values of `dataset.as_chat`.
var AsChatChoices = []string{AsChatAuto, AsChatYes, AsChatNo}

// PlainTextWarning says that rows of a prompt and an answer are trained as plain text although the model has a chat
// template.
const PlainTextWarning = "rows are trained as plain text although the model has a chat template: set dataset.as_chat: yes " +
	"to train them as conversations, or no to keep plain text without this warning"

// formatOf returns the format name with the fields that it reads under this configuration.
func (c Config) formatOf(name string) Format {
	f := Formats[name]
	if f.AsChat != nil && (c.AsChat == AsChatYes || c.AsChat == AsChatAuto) {
		return f.asConversations()
	}
	return f
}

// asConversations returns the format whose rows are conversations. They may have a system message and earlier turns,
// whatever the plain text of the format reads.
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

// talks reports whether rows of a prompt and an answer are trained as conversations. The model's files decide auto.
func (c Config) talks() (bool, error) {
	if c.AsChat != AsChatAuto {
		return c.AsChat == AsChatYes, nil
	}
	sources, err := c.templates()
	if err != nil {
		return false, fmt.Errorf("find the chat template: %w", err)
	}
	_, _, err = sources.Choose(c.ChatTemplate)
	return !errors.Is(err, chat.ErrNoTemplate), nil // other errors are for those who open it
}

// templates are the chat templates of the model's files.
func (c Config) templates() (*chat.Sources, error) {
	if c.chat == nil {
		return &chat.Sources{}, nil
	}
	return c.chat.sources()
}

// settle returns the format by which a file's rows are read, once its name and the model's templates are known.
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

// completionAsChat makes the prompt a user message and the completion the assistant's answer.
func completionAsChat(f Fields, _ Config) (Example, error) {
	return f.dialogue([]string{"prompt"}, "completion")
}

// alpacaAsChat joins instruction and input by a line break to the user message, as LLaMA-Factory and ms-swift do. The
// output is the assistant's answer.
func alpacaAsChat(f Fields, _ Config) (Example, error) {
	return f.dialogue([]string{"instruction", "input"}, "output")
}

// dialogue reads a conversation from columns: the system message, earlier turns, the user message, which joins the
// asked columns that are not blank, and the answer.
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

// noteAsChat says in the report which form the rows of a prompt and an answer have.
func (r *Report) noteAsChat(cfg Config) error {
	if !slices.ContainsFunc(strings.Split(r.Format, ", "), func(name string) bool { return Formats[name].AsChat != nil }) {
		return nil
	}
	if r.Chat.Conversations > 0 && Formats[r.Format].Talks != nil {
		r.AsChat = true // the rows are conversations by themselves
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

// Warnings lists what a person should look at before training, each once: of the report, its sources and the
// validation rows.
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

// leak says how many validation rows are trained, and what that does.
func (r *Report) leak() string {
	return fmt.Sprintf("leak: %d of the %d validation rows are training rows too; the validation loss is lower than on new rows", r.Leaked, r.ValRows)
}

// otherForm says that a format has a field as conversations, or which of its fields is near to the name.
func otherForm(format, role string, roles []string) string {
	if f := Formats[format]; f.AsChat != nil && f.asConversations().hasRoles([]string{role}) {
		return fmt.Sprintf("; with dataset.as_chat: yes it has %s too", role)
	}
	return didYouMean(role, roles)
}
