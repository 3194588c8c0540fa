package serve

import (
	"fmt"
	"testing"
)

// TestReasoningEffort: the template is told of it, and whether to think, unless chat_template_kwargs say otherwise.
func TestReasoningEffort(t *testing.T) {
	const template = "{% for m in messages %}{{ m.content }}{% endfor %}{% if reasoning_effort == 'low' %} once upon " +
		"a time{% endif %}" +
		"{% if enable_thinking is defined and not enable_thinking %} a little girl lived there{% endif %}"
	w := open(t, library(t, template), newFake(t, 2), Options{})
	tokens := func(more string) int {
		status, text := w.post(t, "/v1/chat/completions",
			`{"model":"base","messages":[{"role":"user","content":"Hi"}],"max_tokens":1`+more+`}`)
		if status != 200 {
			t.Fatalf("%s: %d %s", more, status, text)
		}
		return decode[chatReply](t, text).Usage.PromptTokens
	}
	plain, low, none := tokens(""), tokens(`,"reasoning_effort":"low"`), tokens(`,"reasoning_effort":"none"`)
	both := tokens(`,"reasoning_effort":"low","chat_template_kwargs":{"enable_thinking":false}`)
	if got := fmt.Sprint(tokens(`,"reasoning_effort":"high"`) == plain, low > plain, none > plain, both == low+
		none-plain, tokens(`,"reasoning_effort":null`) == plain); got != "true true true true true" {
		t.Errorf("%s: %d tokens, low %d, none %d, both %d", got, plain, low, none, both)
	}
}
