package main

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

	"github.com/spf13/viper"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/importer"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/train"
)

// envPrefix begins the environment variables that set keys: TRAINER_TRAINING_LEARNING_RATE.
const envPrefix = "TRAINER"

// loaded is a configuration that is complete and valid.
type loaded struct {
	Spec  train.Spec
	Name  string   // file as it was found
	Notes []string // what was filled in by a rule or has another name now, to be told
	// AssumedStorage is true where the section quantization was filled in: what the base model is stored as goes before it.
	AssumedStorage bool
	at             map[string]position // where each key was given
}

// invalid is the error of a configuration with problems.
type invalid struct {
	name     string
	problems []problem
	hint     string // what the file looks like instead
}

func (e *invalid) Error() string {
	var b strings.Builder
	hint, other := strings.CutPrefix(e.hint, "; it looks")
	if other { // it is worth more than all that follows
		b.WriteString(e.name + " looks" + hint + "\n")
		hint = ""
	}
	for _, p := range e.problems {
		b.WriteString(p.Error())
		b.WriteByte('\n')
	}
	n := 0
	for _, p := range e.problems {
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
func (e *invalid) places() string {
	var places []string
	for _, p := range e.problems {
		place := "in " + e.name
		switch {
		case strings.HasPrefix(p.at.source, "--"):
			place = "on the command line"
		case p.at.order > 0:
			place = "in the environment"
		}
		if !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	return strings.Join(places, " and ")
}

// otherProgram says that a file with problems looks like one of another program.
func otherProgram(name string, text []byte) string {
	in, err := importer.Read(name, text, "")
	if err != nil {
		return ""
	}
	return fmt.Sprintf("; it looks like a configuration of %s: trainer import %s --out run.yaml translates it", in.Program.Title, shellQuote(name))
}

// loadConfig finds a configuration and merges, each over the one before: defaults, file, environment, --set.
// Every problem of all sources is in the error, which exits with 2.
func loadConfig(name string, sets []string) (loaded, error) {
	text, found, err := findConfig(name)
	if err != nil {
		return loaded{}, usage(err)
	}
	c, problems := mergeConfig(found, text, os.Environ(), sets)
	if len(problems) > 0 {
		sortProblems(problems)
		return loaded{}, usage(&invalid{found, problems, otherProgram(found, text)})
	}
	return c, nil
}

// findConfig looks in the working folder, in configs/ and among the embedded configurations. ".yaml" may be left out.
func findConfig(name string) (text []byte, found string, err error) {
	if name == "" {
		return nil, "", errors.New("name a configuration: --config FILE (trainer configs lists those that are built in)")
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
		if err := plainFile(path); err != nil {
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
	if near := nearest(strings.TrimSuffix(short, ".yaml"), configs.Names()); near != "" {
		hint = "the nearest built-in one is " + near
	} else if near := nearestFile(&fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}); strings.Contains(near, "nearest") {
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
	return io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
}

// mergeConfig makes the configuration from its sources.
func mergeConfig(name string, text []byte, environ, sets []string) (loaded, []problem) {
	file := newLayer(name, 0)
	readable := file.parse(text)
	layers := append([]*layer{file}, environmentLayers(environ)...)
	for _, set := range sets {
		layers = append(layers, commandLineLayer(set, len(layers)))
	}
	v := viper.New()
	at, tables, lists := map[string]position{}, map[string]map[string]any{}, map[string][]map[string]any{}
	c := loaded{Name: name, at: at}
	var problems []problem
	for _, l := range layers {
		if err := v.MergeConfigMap(l.values); err != nil {
			l.bad(nil, "merge: %v", err)
		}
		mergeLists(lists, at, l)
		problems = append(problems, l.problems...)
		if l.left > 0 {
			last := l.position(nil)
			last.line = math.MaxInt
			problems = append(problems, problem{at: last, text: fmt.Sprintf("%d more problems are left out here", l.left), left: l.left})
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
	if err := v.UnmarshalExact(&c.Spec); err != nil {
		problems = append(problems, problem{at: file.position(nil), text: err.Error()})
		return c, problems
	}
	for path, table := range tables {
		setTable(&c.Spec, path, table)
	}
	for path, list := range lists {
		setList(&c.Spec, path, list)
	}
	for _, path := range pathsOf(&c.Spec) {
		*path = expandHome(*path)
	}
	refused := map[string]position{}
	for _, p := range problems {
		refused[pathOf(p.text)] = p.at
		if _, given := at[p.meant]; p.meant != "" && !given {
			refused[p.meant] = p.at
		}
	}
	complain := func(err error) {
		p := problem{at: file.position(nil), text: err.Error()}
		path := pathOf(p.text)
		if _, known := locate(refused, path); known || refusedInstead(refused, path) {
			return // what was given was refused already: the complaint is about the default
		}
		if where, ok := locate(at, path); ok {
			p.at = where
		}
		problems = append(problems, p)
	}
	for _, err := range validate(c.Spec) {
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
func refusedInstead(refused map[string]position, path string) bool {
	other := instead[path]
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
var standsFor = map[string]string{"--vram": "vram", "--devices": "devices", "--resume": "training.resume", "--strict": "training.strict"}

// commandLineLayer reads what --set was given, or a flag that is short for it ("--vram=8GiB").
func commandLineLayer(set string, order int) *layer {
	path, value, ok := strings.Cut(set, "=")
	said := "--set " + shellQuote(shorten(set))
	if key := standsFor[path]; key != "" {
		said, path = path+" "+shellQuote(shorten(value)), key
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
		rest, ours := strings.CutPrefix(name, envPrefix+"_")
		if !ours || value == "" {
			continue
		}
		l := newLayer(name, 1)
		path, ok := environmentPath(rest)
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

// environmentPath is the key of a variable's name without its prefix, or what is wrong with it, or "" for a name
// that is not about a key.
func environmentPath(rest string) (path string, ok bool) {
	var names []string
	for _, k := range schema.leaves() {
		name := strings.ToUpper(strings.ReplaceAll(k.path, ".", "_"))
		if name == rest {
			return k.path, true
		}
		names = append(names, name)
	}
	for old := range renamed {
		if newName(old) != nil && strings.ToUpper(strings.ReplaceAll(old, ".", "_")) == rest {
			return old, true
		}
	}
	for _, section := range schema.keys {
		if section.kind == kindSection && strings.HasPrefix(rest, strings.ToUpper(section.name)+"_") {
			hint := ""
			if near := nearest(rest, names); near != "" {
				hint = "; the nearest is " + envPrefix + "_" + near
			}
			return "sets no key of " + section.name + hint, false
		}
	}
	return "", false
}

// setDefaults gives viper the value of every key that no source sets. QLoRA without a quantization section has the
// default one.
func setDefaults(v *viper.Viper, at map[string]position) (notes []string) {
	defaults := train.DefaultSpec()
	section := v.IsSet("quantization")
	if _, quantised, _ := adapter.Lookup(v.GetString("adapter")); quantised && !section {
		q := quant.Default()
		notes = append(notes, fmt.Sprintf("adapter %s without quantization: %d bits, type %s, blocks of %d, double_quant %v",
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
	root := reflect.ValueOf(defaults)
	for _, k := range schema.leaves() {
		if k.kind == kindTable || k.kind == kindRows {
			continue
		}
		field, err := root.FieldByIndexErr(k.index)
		if err != nil {
			continue // quantization, without one
		}
		if k.kind == kindList {
			v.SetDefault(k.path, append([]string{}, field.Convert(reflect.TypeFor[[]string]()).Interface().([]string)...))
			continue
		}
		v.SetDefault(k.path, field.Interface())
	}
	return notes
}

// setTable writes a table's entries, which have the right type, into the configuration.
func setTable(s *train.Spec, path string, table map[string]any) {
	k, _ := schema.find(path)
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

// pathOf is the key that a message begins with: "training.batch_size: 0 must be …", "dataset.path is missing: …".
func pathOf(text string) string {
	if i := strings.IndexAny(text, ": "); i >= 0 {
		return text[:i]
	}
	return text
}

// locate finds where a key was given, or else the section it belongs to.
func locate(at map[string]position, path string) (position, bool) {
	for {
		if p, ok := at[path]; ok {
			return p, true
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			return position{}, false
		}
		path = path[:i]
	}
}
