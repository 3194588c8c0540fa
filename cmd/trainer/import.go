package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/importer"
	"github.com/tierlora/tierlora/internal/regular"
)

func newImport(c *console) *cobra.Command {
	var from, out string
	var asJSON, accept, verbose bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Translate a configuration of Axolotl, LLaMA-Factory, Unsloth, TRL, torchtune, PEFT or transformers",
		Long: `Translate a configuration of another program: axolotl.yml, LLaMA-Factory's YAML or JSON, an Unsloth or TRL notebook or
script, torchtune's YAML, PEFT's adapter_config.json, transformers' TrainingArguments as JSON. Whose it is, is found from
its keys; --from says it otherwise. A notebook or script is read as text, nothing of it is run.

What would change the training is listed first, and then nothing is written and the exit code is 2: --accept writes the
configuration all the same. Behind it stands what is left to do by hand, and how many keys need nothing; -v lists those
and every key that was translated. Where a key is left out, the other program's default is taken. The configuration goes
to --out, or to standard output.`,
		Example: `  trainer import axolotl.yml --out run.yaml
  trainer import llamafactory.yaml > run.yaml
  trainer import notebook.ipynb --from unsloth --out run.yaml
  trainer import adapter_config.json --json`,
		Args: oneArgument("a file of another program"),
		RunE: func(_ *cobra.Command, args []string) error {
			path := expandHome(args[0])
			result, err := importFile(path, from)
			if err != nil {
				return usage(fmt.Errorf("import %s: %w", shellQuote(args[0]), err))
			}
			if err := otherTraining(result); err != nil {
				return usage(fmt.Errorf("import %s: %w", shellQuote(args[0]), err))
			}
			text, fill, err := importedConfig(path, &result)
			if err != nil {
				return usage(fmt.Errorf("import %s: %w", shellQuote(args[0]), err))
			}
			changed := len(result.Changed())
			var refused error
			if changed > 0 && !accept {
				refused = usage(fmt.Errorf("import %s: %s what is trained, so no configuration is written: look at them above, and take them with --accept",
					shellQuote(args[0]), map[bool]string{true: "1 key changes", false: fmt.Sprintf("%d keys change", changed)}[changed == 1]))
			}
			if out != "" && out != "-" && refused == nil {
				if err := writeNew(out, text); err != nil {
					return err
				}
			}
			if asJSON {
				return errors.Join(writeJSON(c.out, importedJSON(result, fill, out, text)), refused)
			}
			if refused != nil {
				return errors.Join(printImport(c.err, result, fill, "", verbose), refused)
			}
			to := c.out
			if out == "" || out == "-" {
				if _, err := c.out.Write(text); err != nil {
					return fmt.Errorf("write configuration: %w", err)
				}
				to = c.err
			}
			return printImport(to, result, fill, out, verbose)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "the `PROGRAM` that the file is of: "+strings.Join(importer.Names(), ", "))
	pathVar(cmd, &out, "out", "o", "write the configuration to a new `FILE`; - is standard output")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the configuration and what became of each key as JSON")
	cmd.Flags().BoolVar(&accept, "accept", false, "write the configuration although keys change what is trained")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "list every key, those that need nothing too")
	must(cmd.RegisterFlagCompletionFunc("from", fixedWords(importer.Names()...)))
	return cmd
}

// importFile reads and translates a file.
func importFile(path, from string) (importer.Result, error) {
	data, err := readBounded(path, importer.MaxBytes)
	if err != nil {
		return importer.Result{}, err
	}
	in, err := importer.Read(path, data, from)
	if err != nil {
		return importer.Result{}, err
	}
	dir := filepath.Dir(path)
	return importer.Translate(in, importer.Options{Kind: importKind, Own: ownPath, ReadFile: func(name string) ([]byte, error) {
		if filepath.IsAbs(name) || !filepath.IsLocal(filepath.FromSlash(name)) {
			return nil, fmt.Errorf("%s lies elsewhere", name)
		}
		first, err := readBounded(filepath.Join(dir, filepath.FromSlash(name)), maxConfigBytes)
		if err == nil {
			return first, nil
		}
		return readBounded(filepath.FromSlash(name), maxConfigBytes) // LLaMA-Factory looks from its working folder
	}}), nil
}

// otherTraining refuses a file of preference training and the like: what is left of it would train something else.
func otherTraining(r importer.Result) error {
	if r.Refused != "" {
		return fmt.Errorf("%s is another kind of training; a run here trains a causal language model on rows of text (sft, pt), so nothing is translated", r.Refused)
	}
	return nil
}

// readBounded reads a file up to a byte more than it may have.
func readBounded(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, errors.New("it is a folder; name a file")
	}
	if err := regular.Check(path, info); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit+1))
}

func importKind(path string) importer.Kind {
	k, rest := schema.find(path)
	if k == schema || rest != "" {
		return importer.None
	}
	return map[kind]importer.Kind{kindText: importer.TextKind, kindWhole: importer.Whole, kindUnsigned: importer.Whole, kindNumber: importer.Number,
		kindTruth: importer.Truth, kindList: importer.List, kindTable: importer.Table, kindRows: importer.Rows}[k.kind]
}

// ownPath is the key of ours that has a name, of those that other programs have by the same meaning.
func ownPath(name string) string {
	for _, section := range []*key{schema, schema.child("training"), schema.child("lora"), schema.child("dataset")} {
		if k := section.child(name); k != nil && k.kind != kindSection && k.kind != kindRows {
			return k.path
		}
	}
	return ""
}

// placeholders are keys that every run needs and a file may not have.
var placeholders = []commented{
	{path: "base_model", value: "./model", after: "write the model's folder or its name"},
	{path: "dataset.path", value: "data.jsonl", after: "write the path of your rows"},
	{path: "output_dir", value: "runs/imported", after: "the run's folder"},
}

// importedConfig is the configuration of a translation, which our own checks pass: what they refuse is taken back. fill
// are the keys that the user has to write.
func importedConfig(path string, r *importer.Result) (text []byte, fill []string, err error) {
	for range len(r.Settings) + 1 {
		text, fill = writeImported(path, *r)
		_, problems := mergeConfig("the translation", text, nil, nil)
		if len(problems) == 0 {
			return text, fill, nil
		}
		refused := false
		for _, p := range problems {
			said := strings.TrimPrefix(p.text, pathOf(p.text)+": ")
			for at := pathOf(p.text); at != "" && !refused; at = at[:max(0, strings.LastIndexAny(at, ".["))] {
				refused = r.Refuse(at, "refused here: "+said)
			}
		}
		if !refused {
			sortProblems(problems)
			return nil, nil, &invalid{"the translation", problems, ""}
		}
	}
	return nil, nil, errors.New("no configuration is left that this program accepts")
}

func writeImported(path string, r importer.Result) (text []byte, fill []string) {
	has := map[string]bool{}
	var values []commented
	for _, s := range r.Settings {
		has[s.Path] = true
		if strings.HasSuffix("."+s.Path, "."+s.From) {
			s.From = "" // its own name
		}
		values = append(values, commented{path: s.Path, value: s.Value, after: s.From})
	}
	for _, p := range placeholders {
		if has[p.path] || p.path == "dataset.path" && has["dataset.sources"] {
			continue
		}
		fill = append(fill, p.path)
		p.after = "not in the file: " + p.after
		values = append(values, p)
	}
	var missing []string
	for _, class := range []importer.Class{importer.Changes, importer.ByHand} {
		var lines []string
		for _, e := range r.Entries {
			if e.Class == class {
				lines = append(lines, fmt.Sprintf("  %s: %s (%s)", e.Key, e.Value, e.Say))
			}
		}
		if lines != nil {
			missing = append(append(missing, classTitle(class)+":"), lines...)
		}
	}
	head := []string{fmt.Sprintf("Translated from %s of %s; defaults are those of %s.", filepath.Base(path), r.Program.Title, r.Program.Version),
		"Behind a value stands the key that it comes from, where that has another name.", ""}
	return commentedYAML(head, values, missing), fill
}

// classTitle is a class as a heading.
func classTitle(c importer.Class) string { return strings.ToUpper(string(c[:1])) + string(c[1:]) }

// printImport lists what became of the keys: what changes the training first.
func printImport(to io.Writer, r importer.Result, fill []string, out string, verbose bool) error {
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, "program  %s (defaults of %s)\n", r.Program.Title, r.Program.Version)
	list := func(title string, listed bool, of func(e importer.Entry) bool) {
		var lines []string
		for _, e := range r.Entries {
			if of(e) {
				lines = append(lines, importLine(e))
			}
		}
		if len(lines) == 0 {
			return
		}
		if !listed {
			fmt.Fprintf(w, "\n%s: %d keys (-v lists them)\n", title, len(lines))
			return
		}
		fmt.Fprintf(w, "\n%s: %d\n", title, len(lines))
		for _, line := range lines {
			fmt.Fprintln(w, line)
		}
	}
	for _, class := range importer.Classes {
		list(classTitle(class), class != importer.Nothing || verbose, func(e importer.Entry) bool { return e.Class == class })
	}
	list("Translated", verbose, func(e importer.Entry) bool { return e.Class == "" })
	if len(fill) > 0 {
		fmt.Fprintf(w, "\nto write by hand: %s\n", strings.Join(fill, ", "))
	}
	if out != "" && out != "-" {
		fmt.Fprintf(w, "\nwritten  %s\nnext     trainer plan %s\n", out, shellQuote(out))
	}
	return w.Flush()
}

// importLine is an entry in a line.
func importLine(e importer.Entry) string {
	line := "  " + e.Key
	if e.Value != "" {
		line += ": " + e.Value
	}
	if e.Default {
		line += " (its default)"
	}
	if e.To != "" {
		line += " -> " + e.To
		if e.As != "" && e.As != e.Value {
			line += ": " + e.As
		}
	}
	if e.Say != "" {
		line += "; " + e.Say
	}
	return oneLine(line)
}

func importedJSON(r importer.Result, fill []string, out string, text []byte) any {
	if fill == nil {
		fill = []string{}
	}
	return struct {
		Program string           `json:"program"`
		Version string           `json:"version"`
		Keys    []importer.Entry `json:"keys"`
		Fill    []string         `json:"to_write"`
		Out     string           `json:"out,omitempty"`
		Config  string           `json:"config"`
	}{r.Program.Name, r.Program.Version, r.Entries, fill, out, string(text)}
}
