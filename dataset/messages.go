package dataset

import (
	"strings"

	"github.com/tierlora/tierlora/text/chat"
)

// Keys under which rows of conversations have a system message and tools. OpenAI's older format names tools functions.
var (
	systemKeys = []string{"system", "system_prompt"}
	toolKeys   = []string{"tools", chat.FunctionsKey}
	imageKeys  = []string{"images", "image"}
)

// messages reads {messages: [{role, content}], tools, system}: OpenAI's format, as chat templates take it.
var messages = Format{
	Roles: []Role{
		{Name: "messages", Keys: []string{"messages"}},
		{Name: "system", Keys: systemKeys, Optional: true},
		{Name: "tools", Keys: toolKeys, Optional: true},
		{Name: "chat_template_kwargs", Keys: []string{"chat_template_kwargs"}, Optional: true},
		{Name: "images", Keys: imageKeys, Optional: true},
	},
	Chat:     true,
	NoPrompt: "dataset.train_on says what is trained",
	Render:   renderMessages,
}

func renderMessages(f Fields, c Config) (Example, error) {
	return conversation(f, "messages", "", c.Images != nil)
}

// conversation reads the fields that all conversation formats share. The field system becomes the first message, unless
// the messages begin with a system message. The messages of the role completion follow, if completion is not "". images
// says that the row's images are read.
func conversation(f Fields, role, completion string, images bool) (ex Example, err error) {
	raw := chat.Raw{Key: f.Key(role), ToolsKey: f.Key("tools"), WithImages: images}
	if images {
		if raw.Images, err = imageColumn(f); err != nil {
			return Example{}, err
		}
	} else if f.Key("images") != "" && f.Present("images") {
		ex.Unused = append(ex.Unused, f.Key("images"))
	}
	if completion != "" {
		raw.CompletionKey = f.Key(completion)
		if raw.Completion, err = f.JSON(completion); err != nil {
			return Example{}, err
		}
	}
	for role, to := range map[string]*[]byte{role: &raw.Messages, "tools": &raw.Tools,
		"chat_template_kwargs": &raw.Vars} {
		if *to, err = f.JSON(role); err != nil {
			return Example{}, err
		}
	}
	system, err := f.Text("system")
	if err != nil {
		return Example{}, err
	}
	if ex.Conversation, err = chat.Read(raw); err != nil {
		return Example{}, err
	}
	if ex.Unused != nil {
		if err := ex.Conversation.CheckUnread(); err != nil {
			return Example{}, err
		}
	}
	own, has := ex.Conversation.System()
	if ex.Conversation.GiveSystem(system); has && system != "" && strings.TrimSpace(own) != strings.TrimSpace(system) {
		ex.Unused = append(ex.Unused, f.Key("system"))
	}
	return ex, nil
}
