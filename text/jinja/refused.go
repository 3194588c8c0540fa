package jinja

import "strings"

// What Jinja2 and Python have and chat templates do without. Each name is known, so that a template that uses one
// gets an error that says so, and never a text that differs from Jinja2's. None of the templates that are known to the
// tests, and none of those that TRL and Axolotl carry, uses one of them.
const (
	refusedFilters = "batch center filesizeformat forceescape format groupby pprint random slice striptags truncate " +
		"urlencode urlize wordcount wordwrap xmlattr"
	refusedTests           = "escaped filter test"
	refusedGlobals         = "cycler lipsum"
	refusedStrMethods      = "casefold center encode expandtabs format format_map isascii isdecimal isidentifier isprintable istitle ljust maketrans rjust swapcase translate zfill"
	refusedDictMethods     = "fromkeys"
	refusedIntAttributes   = " as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag is_integer numerator real to_bytes "
	refusedFloatAttributes = " as_integer_ratio conjugate fromhex hex imag is_integer real "
	refusedRangeAttributes = " count index "
)

// unsupported ends a rendering that needs what, a name such as "the filter wordwrap".
func unsupported(what string) {
	raise("UnsupportedError", "%s is not supported in chat templates: write the template without it", what)
}

// refusedFilter returns a filter or a test that ends the rendering when it is used.
func refusedFilter(what string) *filter {
	return &filter{context: true, open: func(*state, args) Value {
		unsupported(what)
		return nil
	}}
}

// refuseFilters adds names to a table of filters or tests.
func refuseFilters(table map[string]*filter, kind, names string) {
	for _, name := range strings.Fields(names) {
		table[name] = refusedFilter("the " + kind + " " + name)
	}
}

// refuseMethods adds names to the table of a type's methods.
func refuseMethods(table map[string]*method, typ, names string) {
	for _, name := range strings.Fields(names) {
		table[name] = &method{open: func(*state, Value, args) Value {
			unsupported(typ + "." + name)
			return nil
		}}
	}
}

// refuseAttribute ends the rendering if name, an attribute of a number or a range, is among names.
func refuseAttribute(typ, names, name string) {
	if strings.Contains(names, " "+name+" ") {
		unsupported(typ + "." + name)
	}
}
