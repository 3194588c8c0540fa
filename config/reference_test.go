package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/keys"
	"github.com/tierlora/tierlora/train"
)

var update = flag.Bool("update", false, "write docs/CONFIG.md, docs/config.schema.json and descriptions.go anew")

// TestReferenceIsFresh compares what is generated from the fields' comments, defaults and values with what is
// committed.
func TestReferenceIsFresh(t *testing.T) {
	texts := describe(t)
	docs := filepath.Join(golden.Root(t), "docs")
	for path, want := range map[string][]byte{
		"descriptions.go":                         descriptionsSource(t, texts),
		filepath.Join(docs, "CONFIG.md"):          referencePage(texts),
		filepath.Join(docs, "config.schema.json"): schemaText(texts),
	} {
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the configuration's fields say (%v): go generate ./cmd/trainer writes it anew",
				path, err)
		}
	}
}

var goName = regexp.MustCompile(`\b[A-Z][a-z]+[A-Z][A-Za-z]*\b`)

// Every key and section has a description, in the words of the file and not of the source.
func TestEveryKeyIsDescribed(t *testing.T) {
	texts := describe(t)
	eachKey(Root, func(k *Key) {
		text := texts[k.Path]
		switch {
		case text == "":
			t.Errorf("%s has no description: write a comment at its field", k.Path)
		case !strings.HasSuffix(text, "."):
			t.Errorf("%s: the description is no sentence: %q", k.Path, text)
		}
		for _, name := range goName.FindAllString(text, -1) {
			if !prose[name] {
				t.Errorf("%s: %s is a name of the source: %q", k.Path, name, text)
			}
		}
	})
	if len(texts) != countKeys(Root) {
		t.Errorf("%d descriptions of %d keys", len(texts), countKeys(Root))
	}
}

// prose are words with capitals inside that are no names of the source.
var prose = map[string]bool{"AdamW": true, "AlphaPO": true, "DoRA": true, "LoRA": true,
	"NormalFloat": true, "SimPO": true}

func TestPlainComment(t *testing.T) {
	names := map[string]string{"WarmupRatio": "warmup_ratio", "Epochs": "epochs", "Path": "path", "R": "r"}
	for comment, want := range map[string]string{
		"R is the rank.":                                   "The rank.",
		"Path of a file; Path wins. Path too.":             "Path of a file; `path` wins. Path too.",
		"WarmupRatio sets it;\n0 lets Epochs decide.":      "`warmup_ratio` sets it; 0 lets `epochs` decide.",
		"Target are the layers. They win over WarmupRatio": "The layers. They win over `warmup_ratio`",
	} {
		name, _, _ := strings.Cut(comment, " ")
		if got := plainComment(comment, name, names); got != want {
			t.Errorf("%q is described as %q, want %q", comment, got, want)
		}
	}
}

func eachKey(section *Key, see func(*Key)) {
	for _, k := range section.Keys {
		see(k)
		eachKey(k, see)
	}
}

func countKeys(section *Key) (n int) {
	eachKey(section, func(*Key) { n++ })
	return n
}

// describe reads the comments of all fields, wherever their types stand.
func describe(t *testing.T) map[string]string {
	t.Helper()
	texts, comments := map[string]string{}, map[reflect.Type]map[string]string{}
	var section func(k *Key, typ reflect.Type)
	section = func(k *Key, typ reflect.Type) {
		// of is the struct that holds it, typ or one inlined into it
		field := func(c *Key) (f reflect.StructField, of reflect.Type) {
			index := c.index
			if k.Kind == KindSection { // the keys of a list's sections begin anew
				index = index[len(k.index):]
			}
			of = typ
			for _, i := range index[:len(index)-1] {
				of = of.Field(i).Type
			}
			return of.Field(index[len(index)-1]), of
		}
		names := map[string]string{}
		for _, c := range k.Keys {
			f, of := field(c)
			names[f.Name] = c.Name
			if comments[of] == nil {
				comments[of] = fieldComments(t, of)
			}
		}
		for _, c := range k.Keys {
			field, of := field(c)
			if text := plainComment(comments[of][field.Name], field.Name, names); text != "" {
				texts[c.Path] = text
			}
			if c.Kind == KindSection || c.Kind == KindRows {
				inner := field.Type
				if inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
					inner = inner.Elem()
				}
				section(c, inner)
			}
		}
	}
	section(Root, reflect.TypeFor[train.Spec]())
	return texts
}

// fieldComments are the comments of a struct type's fields, from the sources of the package that the type says it is
// of.
func fieldComments(t *testing.T, typ reflect.Type) map[string]string {
	t.Helper()
	_, inside, ok := strings.Cut(typ.PkgPath(), "/tierlora/tierlora/")
	if !ok {
		t.Fatalf("%v is a type of %q, which is no package of this module", typ, typ.PkgPath())
	}
	files, err := filepath.Glob(filepath.Join(golden.Root(t), filepath.FromSlash(inside), "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources of %s: %v", typ.PkgPath(), err)
	}
	found := map[string]string{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != typ.Name() {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					for _, name := range f.Names {
						found[name.Name] = f.Doc.Text()
						if found[name.Name] == "" {
							found[name.Name] = f.Comment.Text()
						}
					}
				}
			}
			return false
		})
	}
	if len(found) == 0 {
		t.Fatalf("the sources of %s have no type %s", typ.PkgPath(), typ.Name())
	}
	return found
}

// plainComment is a field's comment as a user reads it: without "Name is" in front, other fields by their keys.
func plainComment(comment, field string, names map[string]string) string {
	text := strings.Join(strings.Fields(comment), " ")
	for _, verb := range []string{" is ", " are "} {
		if rest, ok := strings.CutPrefix(text, field+verb); ok {
			text = strings.ToUpper(rest[:1]) + rest[1:]
			break
		}
	}
	words := regexp.MustCompile(`[A-Za-z0-9]+`).FindAllStringIndex(text, -1)
	var b strings.Builder
	at := 0
	for _, w := range words {
		word := text[w[0]:w[1]]
		begins := w[0] == 0 || strings.HasSuffix(text[:w[0]], ". ")
		plain := strings.IndexFunc(word[1:], unicode.IsUpper) < 0 // at a sentence's start it is a word
		if key := names[word]; key != "" && !(begins && plain) {
			b.WriteString(text[at:w[0]] + "`" + key + "`")
			at = w[1]
		}
	}
	return b.String() + text[at:]
}

func descriptionsSource(t *testing.T, texts map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("// Code generated by go generate ./cmd/trainer; DO NOT EDIT.\n\npackage config\n\n" +
		"// descriptions are what the comments of the configuration's fields say, by key.\nvar descriptions = " +
		"map[string]string{\n")
	eachKey(Root, func(k *Key) { fmt.Fprintf(&b, "%q: %q,\n", k.Path, texts[k.Path]) })
	b.WriteString("}\n")
	source, err := format.Source(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return source
}

const referenceIntro = "# Configuration keys\n\n" +
	"<!-- Generated by `go generate ./cmd/trainer` from the comments, defaults and checks in the source. Do not " +
	"edit. -->\n\n" +
	"A run is one YAML file. A key that is left out has its default. `--set training.learning_rate=1e-4` wins over " +
	"the\n" +
	"environment (`TRAINER_TRAINING_LEARNING_RATE=1e-4`), which wins over the file. `trainer validate FILE --show` " +
	"prints\n" +
	"every key with the value that a run would use; `trainer config-schema` prints a JSON schema of all this\n" +
	"([config.schema.json](config.schema.json)). Example files are in [configs/examples](../configs/examples).\n\n" +
	"The column *resume* says what happens if a resumed run has another value than its checkpoint. *free*: the run " +
	"takes\n" +
	"the new value, which changes no step. *steers*: the remaining steps use the new value, and the log names both.\n" +
	"*fixed*: the run is refused if the value would make it another run.\n"

// referencePage is docs/CONFIG.md.
func referencePage(texts map[string]string) []byte {
	var b bytes.Buffer
	b.WriteString(referenceIntro)
	b.WriteString("\n## Top level\n\n")
	referenceTable(&b, Root, texts)
	for _, section := range Root.Keys {
		if section.Kind == KindSection {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", section.Name, texts[section.Path])
			referenceTable(&b, section, texts)
		}
		for _, k := range section.Keys {
			if k.Kind == KindRows && len(k.Keys) > 0 && !strings.HasPrefix(k.Name, "val_") {
				fmt.Fprintf(&b, "\n### %s\n\n%s Each has these keys:\n\n", k.Path, texts[k.Path])
				referenceTable(&b, k.row("[]"), texts)
			}
		}
		if section.Name == "dataset" {
			b.WriteString(formatTable())
		}
	}
	return b.Bytes()
}

// formatTable lists the fields of each data format, with the keys under which they are found in a file.
func formatTable() string {
	var b strings.Builder
	b.WriteString("\nFormats of the rows. A field is found under the first of its keys that a row has; `fields` " +
		"names another key.\n\n" +
		"| format | fields |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(dataset.Formats)) {
		var fields []string
		for _, r := range dataset.Formats[name].Roles {
			field := "`" + strings.Join(r.Keys, "` or `") + "`"
			if r.Keys[0] != r.Name {
				field = r.Name + ": " + field
			}
			if r.Optional {
				field += " (may be missing)"
			}
			fields = append(fields, field)
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, strings.Join(fields, "; "))
	}
	return b.String()
}

func referenceTable(b *bytes.Buffer, section *Key, texts map[string]string) {
	defaults, required := Defaults(), Required()
	b.WriteString("| key | type | default | values | resume | meaning |\n|---|---|---|---|---|---|\n")
	for _, k := range section.Keys {
		if k.Kind == KindSection {
			continue
		}
		value := "empty"
		switch v := defaults[k.Path]; {
		case required[k.Path] && k.Instead != "":
			value = "must be given, or `" + k.Instead + "`"
		case required[k.Path]:
			value = "must be given"
		case v == nil || v == "":
		case k.Kind == KindNumber:
			value = "`" + strconv.FormatFloat(v.(float64), 'g', -1, 64) + "`"
		default:
			text, err := json.Marshal(v)
			if err != nil {
				panic(err) // a plain value
			}
			if value = "`" + string(text) + "`"; k.Kind == KindText {
				value = "`" + v.(string) + "`"
				if strings.ContainsAny(v.(string), "\n\t ") {
					value = "`" + string(text) + "`"
				}
			}
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s |\n", k.Name, typeWord(k), value, k.values(),
			resumeWord(k.Resume), strings.ReplaceAll(texts[k.Path], "|", "\\|"))
	}
}

// resumeWord is a rule of resuming in a word or two.
func resumeWord(r keys.Resume) string {
	if r == keys.Compared {
		r = keys.Fixed // another value is refused where it changes what is compared
	}
	return string(r)
}

// typeWord is a key's type in a word or two.
func typeWord(k *Key) string {
	words := map[Kind]string{KindText: "string", KindWhole: "integer", KindUnsigned: "integer", KindNumber: "number",
		KindTruth: "boolean", KindList: "string or list"}
	if k.Kind == KindTable {
		return "map of " + words[k.Elem] + "s"
	}
	if k.Kind == KindRows {
		return "list of sections"
	}
	return words[k.Kind]
}
