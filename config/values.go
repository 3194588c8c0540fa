package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/adapter"
)

// form is what a free text must look like, by the name in a field's tag form.
type form struct {
	pattern string // a regular expression that holds of the texts that a run accepts; "" = any text
	words   string // for docs/CONFIG.md
	path    bool   // the text names a file or folder: ~ is expanded, control characters are refused
}

// formNumbers is the form of a list whose members are numbers.
const formNumbers = "numbers"

// forms are the forms of texts. The packages that read the texts decide what is accepted; a test compares the two.
var forms = map[string]form{
	"":          {},
	"path":      {path: true},
	"path.prom": {pattern: `^$|\.prom$`, path: true},
	"size": {pattern: `^([0-9]+(\.[0-9]+)? ?([KMGTkmgt][Ii]?[Bb]|[Bb])?)?$`,
		words: "an amount such as 8GiB (2^30) or 8GB (10^9)"},
	"devices": {pattern: `^(all|[1-9][0-9]?|\[ *[0-9]+( *, *[0-9]+)* *\])?$`, words: "1 to 64, `all`, a list such as " +
		"[0, 2]"},
	"metric":  {pattern: `^eval_.+$`, words: "`eval_loss`, or `eval_` and the name of a number"},
	"address": {pattern: `^(https?://[^/@]+(/.*)?)?$`, words: "an http or https address"},
	"start": {
		pattern: "^(" + strings.ReplaceAll(strings.Join(adapter.LoRAStarts(), "|"), "N", "[0-9]{1,3}") + ")?$",
		words:   strings.Join(adapter.LoRAStarts(), ", ") + " (N is a number)",
	},
	formNumbers: {words: "numbers"},
	"loopback":  {pattern: `^((localhost|127(\.[0-9]+){3}|\[::1\]):[0-9]+)?$`, words: "a loopback address with a port"},
}

// form is what the key's text must look like.
func (k *Key) form() form {
	f, ok := forms[k.Form]
	if !ok {
		// any test of keys finds it
		panic(fmt.Sprintf("%s has the form %q, which is none of config's forms", k.Path, k.Form))
	}
	return f
}

// values says in words what a key takes, "" where its type says all.
func (k *Key) values() string {
	if k.Choices != nil {
		words := make([]string, len(k.Choices))
		for i, v := range k.Choices {
			words[i] = "`" + v + "`"
			if v == "" {
				words[i] = "empty"
			}
		}
		return strings.Join(words, ", ")
	}
	if k.Range != nil {
		return k.Range.String()
	}
	return k.form().words
}

// enum is the key's choices as values of its type.
func (k *Key) enum() []any {
	var all []any
	for _, text := range k.Choices {
		if n, err := strconv.Atoi(text); err == nil && k.Kind == KindWhole {
			all = append(all, n)
			continue
		}
		all = append(all, text)
	}
	return all
}
