package dataset

import "github.com/tierlora/tierlora/dataset/chat"

// messages is {messages: [{role, content}], tools}: OpenAI's form, as the model's chat template takes it.
var messages = Format{
	Roles: []Role{
		{Name: "messages", Keys: []string{"messages"}},
		{Name: "tools", Keys: []string{"tools"}, Optional: true},
		{Name: "chat_template_kwargs", Keys: []string{"chat_template_kwargs"}, Optional: true},
	},
	Chat:     true,
	NoPrompt: "dataset.train_on says what is trained",
	Render:   renderMessages,
}

func renderMessages(f Fields, _ Config) (Example, error) {
	return conversation(f, "messages", "")
}

// conversation reads the fields that the formats of conversations share.
func conversation(f Fields, role, system string) (ex Example, err error) {
	raw := chat.Raw{Key: f.Key(role), System: system}
	for role, to := range map[string]*[]byte{role: &raw.Messages, "tools": &raw.Tools, "chat_template_kwargs": &raw.Vars} {
		if *to, err = f.JSON(role); err != nil {
			return Example{}, err
		}
	}
	ex.Conversation, err = chat.Read(raw)
	return ex, err
}
