// Package config reads the configuration of a run: it merges defaults, a YAML file, the environment and the command
// line, checks every key and says what is wrong with the place where it was given. It also writes configurations out,
// as YAML, as a JSON schema and as the reference of all keys. It knows no flags and no terminal.
package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/importer"
	"github.com/tierlora/tierlora/internal/filename"
	"github.com/tierlora/tierlora/internal/keys"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/train"
)

// EnvPrefix begins the environment variables that set keys, such as TRAINER_TRAINING_LEARNING_RATE.
const EnvPrefix = "TRAINER"

// Loaded is a configuration that is complete and valid.
type Loaded struct {
	Spec  train.Spec
	Name  string   // Name is the file as it was found, or embedded:NAME.
	Notes []string // Notes are sentences for the user about keys that were filled in or renamed.
	// AssumedStorage is true where no source has the section quantization and the defaults were filled in. The caller
	// then replaces them by how the base model is stored, if it is stored quantised.
	AssumedStorage bool
	at             map[string]Position // where each key was given
}

// Invalid is the error of a configuration that has problems.
type Invalid struct {
	Name     string    // Name is the file, as in Loaded.
	Problems []Problem // Problems has at least one, in the order of their places.
	Hint     string    // Hint is a clause about the whole file, such as what it looks like instead; "" = none.
}

func (e *Invalid) Error() string {
	var b strings.Builder
	hint, other := strings.CutPrefix(e.Hint, "; it looks")
	if other { // it is worth more than all that follows
		b.WriteString(e.Name + " looks" + hint + "\n")
		hint = ""
	}
	for _, p := range e.Problems {
		b.WriteString(p.Error())
		b.WriteByte('\n')
	}
	n := 0
	for _, p := range e.Problems {
		n += max(1, p.left)
	}
	noun := "problems"
	if n == 1 {
		noun = "problem"
	}
	fmt.Fprintf(&b, "%d %s %s%s", n, noun, e.places(), hint)
	return b.String()
}

// places are where the problems were given.
func (e *Invalid) places() string {
	var places []string
	for _, p := range e.Problems {
		place := "in " + e.Name
		switch {
		case strings.HasPrefix(p.At.Source, "--"):
			place = "on the command line"
		case p.At.order > 0:
			place = "in the environment"
		}
		if !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	return strings.Join(places, " and ")
}

// OtherProgram returns a hint that a file looks like a configuration of another program, "" if it does not.
func OtherProgram(name string, text []byte) string {
	in, err := importer.Read(name, text, "")
	if err != nil {
		return ""
	}
	return fmt.Sprintf("; it looks like a configuration of %s: trainer import %s --out run.yaml translates it",
		in.Program.Title, words.ShellQuote(name))
}

// Load finds a configuration and merges its sources, each over the one before: defaults, file, environment, --set.
// The error is an *Invalid that has every problem of all sources, or says why no file was read.
func Load(name string, sets []string) (Loaded, error) {
	text, found, err := findConfig(name)
	if err != nil {
		return Loaded{}, err
	}
	c, problems := Merge(found, text, os.Environ(), sets)
	if len(problems) > 0 {
		return Loaded{}, &Invalid{found, problems, OtherProgram(found, text)}
	}
	return c, nil
}

// findConfig looks in the working folder, in configs/ and among the embedded configurations. ".yaml" may be left out.
func findConfig(name string) (text []byte, found string, err error) {
	if name == "" {
		return nil, "",
			errors.New("name a configuration: --config FILE (trainer configs lists those that are built in)")
	}
	candidates := []string{name}
	if !filepath.IsAbs(name) {
		candidates = append(candidates, filepath.Join("configs", name))
	}
	if filepath.Ext(name) == "" {
		for _, c := range candidates[:len(candidates):len(candidates)] {
			candidates = append(candidates, c+".yaml")
		}
	}
	for _, path := range candidates {
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			if err != nil && !errors.Is(err, fs.ErrNotExist) && path == name {
				return nil, "", fmt.Errorf("read configuration: %w", err)
			}
			continue
		}
		if err := regular.CheckPath(path); err != nil {
			return nil, "", fmt.Errorf("read configuration: %w", err)
		}
		text, err := readConfig(path)
		if err != nil {
			return nil, "", fmt.Errorf("read configuration: %w", err)
		}
		return text, path, nil
	}
	short := strings.TrimPrefix(filepath.ToSlash(name), "configs/")
	if text, ok := configs.Read(short); ok {
		return text, "embedded:" + strings.TrimSuffix(short, ".yaml") + ".yaml", nil
	}
	hint := "built in are " + strings.Join(configs.Names(), ", ")
	if near := words.Nearest(strings.TrimSuffix(short, ".yaml"), configs.Names()); near != "" {
		hint = "the nearest built-in one is " + near
	} else if near := filename.Nearest(&fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}); strings.Contains(
		near, "nearest") {
		hint = strings.TrimPrefix(near, "; ")
	}
	return nil, "", fmt.Errorf("there is no configuration %q, here, in configs/ or built in; %s", name, hint)
}

// readConfig reads one byte more than a configuration may have.
func readConfig(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxBytes+1))
}

// Merge makes the configuration from its sources: the text of a file, environment variables, and KEY=VALUE of --set.
// The problems are in the order of their places.
func Merge(name string, text []byte, environ, sets []string) (Loaded, []Problem) {
	c, problems := merge(name, text, environ, sets)
	sortProblems(problems)
	return c, problems
}

func merge(name string, text []byte, environ, sets []string) (Loaded, []Problem) {
	file := newLayer(name, 0)
	readable := file.parse(text)
	layers := append([]*layer{file}, environmentLayers(environ)...)
	for _, set := range sets {
		layers = append(layers, commandLineLayer(set, len(layers)))
	}
	v := viper.New()
	at, tables, lists := map[string]Position{}, map[string]map[string]any{}, map[string][]map[string]any{}
	c := Loaded{Name: name, at: at}
	var problems []Problem
	for _, l := range layers {
		if err := v.MergeConfigMap(l.values); err != nil {
			l.bad(nil, "merge: %v", err)
		}
		mergeLists(lists, at, l)
		problems = append(problems, l.problems...)
		if l.left > 0 {
			last := l.position(nil)
			last.Line = math.MaxInt
			problems = append(problems, Problem{At: last, Text: fmt.Sprintf("%d more problems are left out here",
				l.left), left: l.left})
		}
		c.Notes = append(c.Notes, l.notes...)
		for path, p := range l.at {
			at[path] = p
		}
		for path, table := range l.tables {
			if tables[path] == nil {
				tables[path] = map[string]any{}
			}
			for k, value := range table {
				tables[path][k] = value
			}
		}
	}
	if !readable {
		return c, problems
	}
	filled := setDefaults(v, at)
	c.AssumedStorage = len(filled) > 0
	c.Notes = append(append(c.Notes, filled...), renameValues(v)...)
	c.Notes = append(c.Notes, rateNotes(v)...)
	if err := v.UnmarshalExact(&c.Spec, func(c *mapstructure.DecoderConfig) {
		c.TagName, c.SquashTagOption = "yaml", "inline"
	}); err != nil {
		problems = append(problems, Problem{At: file.position(nil), Text: err.Error()})
		return c, problems
	}
	for path, table := range tables {
		setTable(&c.Spec, path, table)
	}
	for path, list := range lists {
		setList(&c.Spec, path, list)
	}
	for _, path := range pathsOf(&c.Spec) {
		*path = filename.ExpandHome(*path)
	}
	refused := map[string]Position{}
	for _, p := range problems {
		refused[KeyOf(p.Text)] = p.At
		if _, given := at[p.meant]; p.meant != "" && !given {
			refused[p.meant] = p.At
		}
	}
	complain := func(err error) {
		p := Problem{At: file.position(nil), Text: err.Error()}
		path := KeyOf(p.Text)
		if _, known := locate(refused, path); known || refusedInstead(refused, path) {
			return // what was given was refused already: the complaint is about the default
		}
		if where, ok := locate(at, path); ok {
			p.At = where
		}
		problems = append(problems, p)
	}
	for _, err := range Validate(c.Spec) {
		complain(err)
	}
	if len(problems) == 0 { // what else is wrong may be why a key does nothing
		for _, err := range train.Inert(c.Spec) {
			complain(err)
		}
	}
	return c, problems
}

// refusedInstead says that the key that stands for a missing one was given, and refused.
func refusedInstead(refused map[string]Position, path string) bool {
	k, _ := Root.Find(path)
	other := k.Instead
	if other == "" {
		return false
	}
	other = path[:strings.LastIndexByte(path, '.')+1] + other
	for given := range refused {
		if given == other || strings.HasPrefix(given, other+"[") {
			return true
		}
	}
	return false
}

// standsFor are the flags that are short for --set of a key.
var standsFor = map[string]string{"--vram": "vram", "--devices": "devices", "--resume": "training.resume",
	"--strict": "training.strict"}

// commandLineLayer reads what --set was given, or a flag that is short for it ("--vram=8GiB").
func commandLineLayer(set string, order int) *layer {
	path, value, ok := strings.Cut(set, "=")
	said := "--set " + words.ShellQuote(words.Shorten(set))
	if key := standsFor[path]; key != "" {
		said, path = path+" "+words.ShellQuote(words.Shorten(value)), key
	}
	l := newLayer(said, order)
	l.key = strings.TrimSpace(path)
	if !ok {
		l.bad(nil, "write --set key=value, such as --set training.max_steps=10")
	} else {
		l.assign(l.key, value)
	}
	return l
}

// environmentLayers reads TRAINER_* variables. Those that begin like a section must name one of its keys; others
// are not ours.
func environmentLayers(environ []string) []*layer {
	var layers []*layer
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		rest, ours := strings.CutPrefix(name, EnvPrefix+"_")
		if !ours || value == "" {
			continue
		}
		l := newLayer(name, 1)
		path, ok := EnvironmentKey(rest)
		switch {
		case ok:
			l.assign(path, value)
		case path != "":
			l.bad(nil, "%s", path)
		default:
			continue
		}
		layers = append(layers, l)
	}
	return layers
}

// EnvironmentKey returns the key of a variable's name without its prefix. Where ok is false, path says what is wrong
// with the name, or is "" for a name that is not about a key.
func EnvironmentKey(rest string) (path string, ok bool) {
	var names []string
	for _, k := range Root.Leaves() {
		name := strings.ToUpper(strings.ReplaceAll(k.Path, ".", "_"))
		if name == rest {
			return k.Path, true
		}
		names = append(names, name)
	}
	for old := range renamed {
		if newName(old) != nil && strings.ToUpper(strings.ReplaceAll(old, ".", "_")) == rest {
			return old, true
		}
	}
	for _, section := range Root.Keys {
		if section.Kind == KindSection && strings.HasPrefix(rest, strings.ToUpper(section.Name)+"_") {
			hint := ""
			if near := words.Nearest(rest, names); near != "" {
				hint = "; the nearest is " + EnvPrefix + "_" + near
			}
			return "sets no key of " + section.Name + hint, false
		}
	}
	return "", false
}

// mostFullRate is the learning rate above which a run that trains all weights gets a note.
const mostFullRate = 1e-4

// rateNotes says that the learning rate of a run that trains the base model's weights is one of LoRA.
func rateNotes(v *viper.Viper) []string {
	m, _, err := adapter.Lookup(v.GetString("adapter"))
	rate := v.GetFloat64("training.learning_rate")
	if err != nil || !m.Whole() || rate <= mostFullRate {
		return nil
	}
	return []string{fmt.Sprintf("training.learning_rate: %g is a rate for LoRA; training of the weights themselves "+
		"usually takes about a tenth, 1e-5 to 5e-5", rate)}
}

// setDefaults gives viper the value of every key that no source sets. QLoRA without a quantization section has the
// default one, and so has the objective that training.objective names without its section.
func setDefaults(v *viper.Viper, at map[string]Position) (notes []string) {
	defaults := train.DefaultSpec()
	section := v.IsSet("quantization")
	if _, quantised, _ := adapter.Lookup(v.GetString("adapter")); quantised && !section {
		q := quant.Default()
		notes = append(notes, fmt.Sprintf("adapter %s without a quantization section: the base model is quantised to "+
			"%d bits (%s, blocks of %d, double_quant %v)",
			v.GetString("adapter"), q.Bits, q.Type, q.BlockSize, q.DoubleQuant))
		section = true
	}
	if section {
		q := quant.ForBits(v.GetInt("quantization.bits"))
		if name := v.GetString("quantization.type"); quant.Schemes[name] != nil {
			q = quant.DefaultOf(name)
		}
		defaults.Quantization = &q
	}
	root := reflect.ValueOf(&defaults).Elem()
	for _, section := range Root.Keys {
		set := v.IsSet(section.Path) || section.Path == v.GetString("training.objective")
		if field := root.FieldByIndex(section.index); field.Kind() == reflect.Pointer && field.IsNil() &&
			section.Path != "quantization" && set {
			field.Set(reflect.New(field.Type().Elem()))
			keys.SetDefaults(field.Interface())
		}
	}
	for _, k := range Root.Leaves() {
		if k.Kind == KindTable || k.Kind == KindRows {
			continue
		}
		field, err := root.FieldByIndexErr(k.index)
		if err != nil {
			continue // a key of a section that is not there
		}
		if k.Kind == KindList {
			v.SetDefault(k.Path, append([]string{}, field.Convert(reflect.TypeFor[[]string]()).
				Interface().([]string)...))
			continue
		}
		v.SetDefault(k.Path, field.Interface())
	}
	return notes
}

// setTable writes a table's entries, which have the right type, into the configuration.
func setTable(s *train.Spec, path string, table map[string]any) {
	k, _ := Root.Find(path)
	if len(table) == 0 {
		return
	}
	field := reflect.ValueOf(s).Elem().FieldByIndex(k.index)
	m := reflect.MakeMap(field.Type())
	for name, value := range table {
		m.SetMapIndex(reflect.ValueOf(name), reflect.ValueOf(value).Convert(field.Type().Elem()))
	}
	field.Set(m)
}

// KeyOf returns the key that a message begins with: "training.batch_size: 0 must be …", "dataset.path is missing: …".
func KeyOf(text string) string {
	if i := strings.IndexAny(text, ": "); i >= 0 {
		return text[:i]
	}
	return text
}

// locate finds where a key was given, or else the section it belongs to.
func locate(at map[string]Position, path string) (Position, bool) {
	for {
		if p, ok := at[path]; ok {
			return p, true
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			return Position{}, false
		}
		path = path[:i]
	}
}

// Invalid makes an error of problems that were found outside this package, each of which begins with its key. hint ends
// the last line.
func (l *Loaded) Invalid(errs []error, hint string) *Invalid {
	bad := &Invalid{Name: l.Name, Hint: hint}
	for _, err := range errs {
		p := Problem{At: Position{Source: l.Name}, Text: err.Error()}
		if at, ok := locate(l.at, KeyOf(p.Text)); ok {
			p.At = at
		}
		bad.Problems = append(bad.Problems, p)
	}
	sortProblems(bad.Problems)
	return bad
}
