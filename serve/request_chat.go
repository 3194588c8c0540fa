package serve

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/text/chat"
)

// mostEscaped is the most bytes of JSON for one byte of a text: \u0041.
const mostEscaped = 6

// conversation parses the body of /v1/chat/completions.
func (l *Library) conversation(body []byte) (*request, *Error) {
	f, err := readFields(body, "prompt", 0)
	if err != nil {
		return nil, err
	}
	r := &request{chat: true}
	l.common(f, r)
	_, newer := f.object["max_completion_tokens"]
	given := f.whole("max_tokens", &r.sampling.MaxTokens, 1, 1<<31-1)
	if newer {
		given = f.whole("max_completion_tokens", &r.sampling.MaxTokens, 1, 1<<31-1) || given
	}
	r.fill = !given
	f.raw("max_completion_tokens")
	f.flag("logprobs", &r.logprobs)
	r.sampling.Logprobs = r.logprobs
	if f.whole("top_logprobs", &r.top, 0, maxTop) {
		if r.sampling.TopLogprobs = r.top; !r.logprobs {
			f.wrong("top_logprobs", "is only for logprobs: true")
		}
	}
	f.modalities()
	tools, forced := f.tools()
	raw := chat.Raw{Key: "messages", Tools: tools, WithImages: l.ShowImages != nil}
	if v := f.raw("chat_template_kwargs"); v != nil {
		if raw.Vars = v; kindOf(v) != "an object" {
			f.wrong("chat_template_kwargs", "is %s, want an object", kindOf(v))
		} else if _, err := chat.Vars(v); err != nil {
			f.wrong("chat_template_kwargs", "%s", err)
		}
	}
	raw.Vars = f.effort(raw.Vars)
	messages := f.messages(raw.WithImages)
	f.unknown()
	if f.err != nil {
		return nil, f.err
	}
	texts := len(raw.Vars) + len(tools)
	for _, m := range messages {
		texts += textBytes(m["content"])
	}
	if err := l.tooLarge("messages", "the conversation", texts/mostEscaped); err != nil {
		return nil, err
	}
	p, err := l.write(r.model, messages, raw)
	if err != nil {
		return nil, err
	}
	if forced != nil {
		if err := l.force(r, &p, tools, forced); err != nil {
			return nil, err
		}
	} else if tools != nil && r.sampling.Form != nil {
		return nil, invalid("response_format", "response_format: the answer is to be JSON, and tools may be called: "+
			"set tool_choice to none, or to the call that is wanted")
	}
	r.prompts = []prompt{p}
	return r, l.fits(r)
}

// efforts are the values of reasoning_effort.
var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

// effort adds reasoning_effort, and whether to think, to the template's variables unless they are set.
func (f *fields) effort(vars json.RawMessage) json.RawMessage {
	effort := ""
	if !f.text("reasoning_effort", &effort) {
		return vars
	}
	if !slices.Contains(efforts, effort) {
		f.wrong("reasoning_effort", "is %q, want one of %s", effort, strings.Join(efforts, ", "))
		return vars
	}
	all := map[string]json.RawMessage{}
	if vars != nil && json.Unmarshal(vars, &all) != nil {
		return vars // set already
	}
	for key, v := range map[string]any{"reasoning_effort": effort, "enable_thinking": effort != "none"} {
		if _, given := all[key]; !given {
			all[key], _ = json.Marshal(v)
		}
	}
	vars, _ = json.Marshal(all)
	return vars
}

// modalities accepts text only.
func (f *fields) modalities() {
	var kinds []string
	if f.read("modalities", &kinds, "a list") && !slices.Equal(kinds, []string{"text"}) {
		f.wrong("modalities", "want [\"text\"]: these models write text")
	}
}

// tools reads tools and tool_choice. tools is nil if the model must not call any; chosen is set if it has to call one.
func (f *fields) tools() ([]byte, *chosen) {
	tools := f.raw("tools")
	choice := f.raw("tool_choice")
	if choice == nil {
		return tools, nil
	}
	switch text := strings.Trim(string(choice), `"`); {
	case text == "none":
		return nil, nil
	case text == "auto":
	case text == "required":
		return tools, &chosen{}
	case kindOf(choice) == "an object":
		return tools, f.named()
	default:
		f.wrong("tool_choice", "is %s, want auto, none, required or a function", clip(string(choice)))
	}
	return tools, nil
}

// named reads {"type": "function", "function": {"name": NAME}}.
func (f *fields) named() *chosen {
	in, c, kind := f.inner("tool_choice"), &chosen{}, ""
	in.text("type", &kind)
	function := in.inner("function")
	if kind != "function" || function == nil || !function.text("name", &c.name) || c.name == "" {
		in.wrong("type", "want {\"type\": \"function\", \"function\": {\"name\": NAME}}")
	} else {
		in.done(function)
	}
	f.done(in)
	return c
}

// openAIRoles are the roles of OpenAI's messages.
var openAIRoles = []string{"system", "developer", "user", "assistant", "tool"}

// textBytes returns the bytes of a message's content without those of its images.
func textBytes(content json.RawMessage) int {
	var parts []json.RawMessage
	if len(content) == 0 || content[0] != '[' || json.Unmarshal(content, &parts) != nil {
		return len(content)
	}
	n := 0
	for _, raw := range parts {
		var part struct{ Type string }
		if json.Unmarshal(raw, &part) != nil || !slices.Contains(imageParts, part.Type) {
			n += len(raw)
		}
	}
	return n
}

// imageParts are the types of parts with an image.
var imageParts = []string{"image_url", "input_image", "image"}

// messages reads the list of messages and rejects content that this server cannot process, such as audio, and images
// unless the model reads them.
func (f *fields) messages(images bool) []map[string]json.RawMessage {
	var list []json.RawMessage
	if !f.read("messages", &list, "a list of messages") {
		f.wrong("messages", "is missing: want a list of messages")
		return nil
	}
	if len(list) == 0 || len(list) > maxMessages {
		f.wrong("messages", "has %d messages, want 1 to %d", len(list), maxMessages)
		return nil
	}
	all := make([]map[string]json.RawMessage, len(list))
	role := ""
	for i, raw := range list {
		m := &fields{at: "messages[" + itoa(i) + "]"}
		if json.Unmarshal(raw, &m.object) != nil || m.object == nil {
			m.wrong("", "is %s, want an object with role and content", kindOf(raw))
		} else if m.at += "."; !m.text("role", &role) {
			m.wrong("role", "is missing: want one of %s", strings.Join(openAIRoles, ", "))
		} else if !slices.Contains(openAIRoles, role) {
			m.wrong("role", "is %q, want one of %s", clip(role), strings.Join(openAIRoles, ", "))
		} else {
			m.parts(images)
		}
		if f.err == nil {
			f.err = m.err
		}
		all[i] = m.object
	}
	if f.err == nil && role == "assistant" {
		f.wrong("messages", "the last message is the assistant's own: end with the message that is to be answered")
	}
	return all
}

// parts rejects content that the model does not read, by its type.
func (m *fields) parts(images bool) {
	var parts []struct {
		Type string `json:"type"`
	}
	v := m.object["content"]
	if len(v) == 0 || v[0] != '[' || json.Unmarshal(v, &parts) != nil {
		return
	}
	for i, p := range parts {
		where := "content[" + itoa(i) + "]"
		switch p.Type {
		case "text", "":
		case "image_url", "input_image", "image":
			if images {
				continue
			}
			m.wrong(where, "is an image (%s): this server reads text alone", p.Type)
		case "input_audio", "audio_url", "audio":
			m.wrong(where, "is audio (%s): this server reads text alone", p.Type)
		case "file", "input_file":
			m.wrong(where, "is a file (%s): this server reads text alone", p.Type)
		case "video_url", "video":
			m.wrong(where, "is a video (%s): this server reads text alone", p.Type)
		default:
			m.wrong(where, "is of type %q: this server reads text alone", clip(p.Type))
		}
	}
}

// write renders a conversation with the model's template.
func (l *Library) write(m *Model, messages []map[string]json.RawMessage, raw chat.Raw) (prompt, *Error) {
	if m.Chat == nil {
		e := invalid("model", "model: %s answers no conversations: %s", m.Name, m.NoChat)
		e.Code = "no_chat_template"
		return prompt{}, e
	}
	plain, tools := m.Chat.Used()
	// otherwise the template treats these instructions as the system message
	if !hasText(plain.Source+tools.Source, "developer") {
		for _, message := range messages {
			if string(message["role"]) == `"developer"` {
				message["role"] = json.RawMessage(`"system"`)
			}
		}
	}
	var err error
	if raw.Messages, err = marshal(messages); err != nil {
		return prompt{}, invalid("messages", "messages: %s", err)
	}
	conv, err := chat.Read(raw)
	if err != nil {
		return prompt{}, invalid("messages", "%s", err)
	}
	conv.GiveSystem(m.System)
	p, err := infer.ChatPrompt(m.Chat, l.Tokenizer, conv)
	if err == nil && len(conv.Images) > 0 {
		p, err = l.show(p, conv.Images)
	}
	if err != nil {
		return prompt{}, invalid("messages", "messages: %s", err)
	}
	out := prompt{Prompt: p}
	if conv.Tools != nil {
		out.calls = callsOf(tools.Source)
	}
	return out, nil
}

// show puts the images that data: URIs hold in their places of a prompt. Nothing is fetched, and no file is read.
func (l *Library) show(p infer.Prompt, refs []string) (infer.Prompt, error) {
	var files [][]byte
	for i, ref := range refs {
		if !strings.HasPrefix(ref, "data:") {
			return p, fmt.Errorf("image %d is no data: URI, and this server fetches nothing: send "+
				"data:image/png;base64,…", i+1)
		}
		file, err := dataset.ReadImage(ref)
		if err != nil {
			return p, fmt.Errorf("image %d: %w", i+1, err)
		}
		files = append(files, file)
	}
	return l.ShowImages(p, files)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
