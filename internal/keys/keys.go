// Package keys reads what the fields of a configuration's sections say about their keys. A field says everything once:
// its Go type is the key's type, its comment the documentation, and its tags are the rest.
//
//	BatchSize int `yaml:"batch_size" default:"1" range:"[1,inf)" resume:"steers"`
//
// The tags are
//
//	yaml     the key's name; "-" or none: the field is no key; ",inline": the struct's fields are keys of this section
//	default  the value of a key that is not set; members of a list are separated by blanks; none = the zero value
//	range    the numbers that are allowed, as an interval: [ and ] include the bound, ( and ) exclude it
//	choices  the texts that are allowed, separated by blanks; a section with choices from a table has a method Choices
//	form     what a free text must look like, by the name of the form: size, path, address ...
//	instead  the key of the same section that may be given in place of this required one
//	resume   what resuming a run under another value means: see Resume
package keys

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/internal/words"
)

// Resume says what happens when a run is resumed with another value of a key. The zero value is no rule.
type Resume string

// The rules of resuming.
const (
	// Free keys change no number of a step: memory, devices, files and when they are written.
	Free Resume = "free"
	// Steers marks a key that acts on the steps to come. The resumed run takes the new value and logs both.
	Steers Resume = "steers"
	// Fixed marks a key that a checkpoint's contents depend on. Another value is refused.
	Fixed Resume = "fixed"
	// Compared marks a key whose effect is compared in place of its value: rows by their hash, tensors by name and
	// shape.
	Compared Resume = "compared"
)

// Key is what a field says about its key.
type Key struct {
	Name    string    // Name of the key in its section, such as batch_size.
	Default string    // Default is the text of the tag; "" = the zero value of the type.
	Range   *Interval // Range of a number, or of the values of a map; nil = no bounds.
	Choices []string  // Choices are the texts that are allowed; nil = free.
	Form    string    // Form is the name of a free text's form; "" = any text.
	Instead string    // Instead is the name of the key that may stand in place of this required one; "" = none.
	Resume  Resume    // Resume is the rule for resuming under another value.
}

// chooser is a section whose choices come from tables, such as the names of optimizers.
type chooser interface{ Choices() map[string][]string }

// Of reads field i of a section's struct type. It returns false for a field that is no key, and panics on a malformed
// tag, which any test of the section finds.
func Of(section reflect.Type, i int) (Key, bool) {
	field := section.Field(i)
	name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
	if name == "" || name == "-" {
		return Key{}, false
	}
	k := Key{Name: name, Default: field.Tag.Get("default"), Form: field.Tag.Get("form"),
		Instead: field.Tag.Get("instead"),
		Resume:  Resume(field.Tag.Get("resume"))}
	if !slices.Contains([]Resume{"", Free, Steers, Fixed, Compared}, k.Resume) {
		panic(fmt.Sprintf("%v.%s: resume is %q", section, field.Name, k.Resume))
	}
	if text, ok := field.Tag.Lookup("range"); ok {
		r, err := ParseInterval(text)
		if err != nil {
			panic(fmt.Sprintf("%v.%s: %v", section, field.Name, err))
		}
		k.Range = &r
	}
	if text, ok := field.Tag.Lookup("choices"); ok {
		k.Choices = strings.Fields(text)
	}
	if tables, ok := reflect.Zero(section).Interface().(chooser); ok && k.Choices == nil {
		k.Choices = tables.Choices()[name]
	}
	return k, true
}

// Inline reports whether a field is a struct whose fields are keys of the section that holds it: its tag is
// yaml:",inline".
func Inline(f reflect.StructField) bool {
	return f.Type.Kind() == reflect.Struct && f.Tag.Get("yaml") == ",inline"
}

// SetDefaults sets the fields of the struct that to points at to their defaults, and so those of sections within it.
// Sections behind pointers and lists of sections stay as they are. Lists of texts are empty where they are not set, not
// nil.
func SetDefaults(to any) { setDefaults(reflect.ValueOf(to).Elem()) }

func setDefaults(section reflect.Value) {
	t := section.Type()
	for i := range t.NumField() {
		if Inline(t.Field(i)) {
			setDefaults(section.Field(i))
			continue
		}
		k, ok := Of(t, i)
		if !ok {
			continue
		}
		field := section.Field(i)
		if field.Kind() == reflect.Struct {
			setDefaults(field)
			continue
		}
		if field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.String {
			list := strings.Fields(k.Default)
			field.Set(reflect.MakeSlice(field.Type(), len(list), len(list)))
			for j, text := range list {
				field.Index(j).SetString(text)
			}
			continue
		}
		if k.Default == "" {
			continue
		}
		if err := set(field, k.Default); err != nil {
			panic(fmt.Sprintf("%v.%s: default %q: %v", t, t.Field(i).Name, k.Default, err))
		}
	}
}

// set gives a field the value that a text stands for.
func set(field reflect.Value, text string) (err error) {
	switch field.Kind() {
	case reflect.String:
		field.SetString(text)
	case reflect.Int, reflect.Int64:
		var v int64
		v, err = strconv.ParseInt(text, 10, 64)
		field.SetInt(v)
	case reflect.Uint64:
		var v uint64
		v, err = strconv.ParseUint(text, 10, 64)
		field.SetUint(v)
	case reflect.Float64:
		var v float64
		v, err = strconv.ParseFloat(text, 64)
		field.SetFloat(v)
	case reflect.Bool:
		var v bool
		v, err = strconv.ParseBool(text)
		field.SetBool(v)
	default:
		err = fmt.Errorf("a %v has no default", field.Type())
	}
	return err
}

// Each visits the keys of a section and of the sections within it, in the order of the fields. path is the key with its
// sections, such as training.batch_size. Keys of a section behind a nil pointer are left out.
func Each(section any, see func(path string, k Key, value any)) {
	each("", reflect.ValueOf(section), see)
}

func each(prefix string, section reflect.Value, see func(path string, k Key, value any)) {
	for i := range section.NumField() {
		if Inline(section.Type().Field(i)) {
			each(prefix, section.Field(i), see)
			continue
		}
		k, ok := Of(section.Type(), i)
		if !ok {
			continue
		}
		value := section.Field(i)
		if value.Kind() == reflect.Pointer {
			if value.IsNil() {
				continue
			}
			value = value.Elem()
		}
		if value.Kind() == reflect.Struct {
			each(prefix+k.Name+".", value, see)
			continue
		}
		see(prefix+k.Name, k, value.Interface())
	}
}

// Check compares a section's own values with what its fields allow and returns an error for each that does not fit.
// prefix stands before the keys' names in messages, such as "training."; sections within the section check themselves.
func Check(prefix string, section any) []error {
	var problems []error
	v := reflect.ValueOf(section)
	for i := range v.NumField() {
		if Inline(v.Type().Field(i)) {
			problems = append(problems, Check(prefix, v.Field(i).Interface())...)
			continue
		}
		if k, ok := Of(v.Type(), i); ok {
			problems = append(problems, k.check(prefix+k.Name, v.Field(i))...)
		}
	}
	return problems
}

func (k Key) check(path string, value reflect.Value) (problems []error) {
	add := func(err error) {
		if err != nil {
			problems = append(problems, err)
		}
	}
	switch value.Kind() {
	case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Float64:
		add(k.inRange(path, value))
	case reflect.String:
		add(k.chosen(path, value.String()))
	case reflect.Slice:
		for i := range value.Len() {
			if item := value.Index(i); item.Kind() == reflect.String {
				add(k.chosen(path, item.String()))
			}
		}
	case reflect.Map:
		for _, name := range slices.SortedFunc(slices.Values(value.MapKeys()), func(a, b reflect.Value) int {
			return strings.Compare(a.String(), b.String())
		}) {
			add(k.inRange(path+"."+name.String(), value.MapIndex(name)))
		}
	}
	return problems
}

// inRange is an error for a number outside of the key's range.
func (k Key) inRange(path string, value reflect.Value) error {
	if k.Range == nil {
		return nil
	}
	var v float64
	switch value.Kind() {
	case reflect.Uint64:
		v = float64(value.Uint())
	case reflect.Float64:
		v = value.Float()
	default:
		v = float64(value.Int())
	}
	if k.Range.Holds(v) {
		return nil
	}
	hint := ""
	if k.Range.Low == 0 && k.Range.High == 1 && v > 1 && v <= 100 {
		hint = fmt.Sprintf(" (%v is %v%%)", v/100, v)
	}
	return fmt.Errorf("%s: %v must be %s%s", path, value.Interface(), k.Range.Bounds(), hint)
}

// chosen is an error for a text that is not one of the key's choices.
func (k Key) chosen(path, text string) error {
	if k.Choices == nil || slices.Contains(k.Choices, text) {
		return nil
	}
	named := slices.DeleteFunc(slices.Clone(k.Choices), func(c string) bool { return c == "" })
	hint := ""
	// a short word is near to anything: gpu to cpu
	if near := words.Nearest(text, named); near != "" && len(text) >= 5 {
		hint = "; did you mean " + near + "?"
	}
	return fmt.Errorf("%s: %q is not one of %s%s", path, text, strings.Join(named, ", "), hint)
}
