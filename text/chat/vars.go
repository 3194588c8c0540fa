package chat

import (
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/text/jinja"
)

// reserved are the names that rendering sets itself in addition to the special tokens. Another value would replace the
// conversation after the checks of its roles, its tools and the special tokens in its texts, or replace the functions
// with which a template rejects a conversation. documents is not reserved: transformers takes it from its caller too.
var reserved = append([]string{
	"messages", "tools", "add_generation_prompt", "continue_final_message",
	"raise_exception", "strftime_now", "range", "dict", "namespace", "cycler", "joiner", "lipsum",
	"loop", "self", "caller", "varargs", "kwargs",
}, tokenNames...)

// Vars reads further variables for a template from a JSON object. It rejects names that rendering sets itself.
func Vars(raw []byte) (*jinja.Dict, error) {
	v, err := jinja.FromJSON(raw)
	if err != nil {
		return nil, fmt.Errorf("the template's variables: %w", err)
	}
	d, ok := v.(*jinja.Dict)
	if !ok {
		return nil, fmt.Errorf("the template's variables are %s, want an object", typeOf(v))
	}
	for i := range d.Len() {
		key, _ := d.At(i)
		if name, ok := key.(jinja.Str); ok && slices.Contains(reserved, string(name)) {
			return nil, fmt.Errorf(
				"the template's variables: %s is set from the conversation, its tools or the tokenizer, "+
					"and cannot be given as a variable", name)
		}
	}
	return d, nil
}
