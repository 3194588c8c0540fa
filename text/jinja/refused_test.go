package jinja

import (
	"errors"
	"strings"
	"testing"
)

// TestRefusedByName holds every name that Jinja2 or Python knows and this package does not: an error that says the
// name, not an unknown name and not a text.
func TestRefusedByName(t *testing.T) {
	sources := map[string]string{"{{ '%d' % 1 }}": "formatting a text with %", "{{ range(3).count(1) }}": "range.count"}
	add := func(names, form, what string) {
		for _, name := range strings.Fields(names) {
			sources[strings.ReplaceAll(form, "NAME", name)] = what + name
		}
	}
	add(refusedFilters, "{{ 'a'|NAME }}", "the filter ")
	add(refusedFilters, "{{ ['a']|map('NAME')|list }}", "the filter ")
	add(refusedTests, "{{ 'a' is NAME }}", "the test ")
	add(refusedTests, "{{ ['a']|select('NAME')|list }}", "the test ")
	add(refusedGlobals, "{{ NAME('a') }}", "the function ")
	add(refusedStrMethods, "{{ 'a'.NAME() }}", "str.")
	add(refusedStrMethods, "{{ ('a'|safe).NAME(1) }}", "str.")
	add(refusedDictMethods, "{{ {}.NAME([1]) }}", "dict.")
	add(refusedIntAttributes, "{{ (1).NAME }}", "int.")
	add(refusedIntAttributes, "{{ (10**30).NAME }}", "int.")
	add(refusedFloatAttributes, "{{ (1.5).NAME }}", "float.")
	add(refusedRangeAttributes, "{{ range(3).NAME }}", "range.")
	for source, what := range sources {
		out, err := renderSource(source, NewDict())
		var e *Error
		if !errors.As(err, &e) || e.Kind != "UnsupportedError" || e.Line != 1 || !strings.HasPrefix(e.Message, what+" is not supported in chat templates") {
			t.Errorf("%s gives %q, %v", source, out.Text, err)
		}
	}
	// A branch that a conversation does not reach may name them.
	if out, err := renderSource("{% if false %}{{ 'a'|wordwrap(1) }}{{ '%s' % 1 }}{% endif %}b", NewDict()); err != nil || out.Text != "b" {
		t.Errorf("a branch that is not reached: %q, %v", out.Text, err)
	}
}
