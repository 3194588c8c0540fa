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

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/importer"
	"github.com/tierlora/tierlora/internal/filename"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/internal/words"
)

func newImport(c *console) *cobra.Command {
	var from, out string
	var asJSON, accept, verbose bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Translate a configuration of Axolotl, LLaMA-Factory, Unsloth, TRL, ms-swift, torchtune or PEFT",
		Long: `Translate another program's configuration: axolotl.yml, LLaMA-Factory's YAML or JSON, an Unsloth or TRL
notebook or script, ms-swift's shell script or YAML, torchtune's YAML, PEFT's adapter_config.json, or
transformers' TrainingArguments as JSON. import recognises the program by the keys; --from overrides that. It
reads notebooks and scripts as text and runs nothing.

import first lists keys that would change the training. If there are any, it writes nothing and exits with code 2;
--accept writes the configuration all the same. Then it lists what is left to do by hand. -v lists every key. Where a
key is missing, the other program's default is written. The configuration goes to --out, or to standard output.`,
		Example: `  trainer import axolotl.yml --out run.yaml
  trainer import llamafactory.yaml > run.yaml
  trainer import notebook.ipynb --from unsloth --out run.yaml
  trainer import adapter_config.json --json`,
		Args: oneArgument("a file of another program"),
		RunE: func(_ *cobra.Command, args []string) error {
			path := filename.ExpandHome(args[0])
			result, err := importFile(path, from)
			if err != nil {
				return usage(fmt.Errorf("import %s: %w", words.ShellQuote(args[0]), err))
			}
			if err := otherTraining(result); err != nil {
				return usage(fmt.Errorf("import %s: %w", words.ShellQuote(args[0]), err))
			}
			text, fill, err := importedConfig(path, &result)
			if err != nil {
				return usage(fmt.Errorf("import %s: %w", words.ShellQuote(args[0]), err))
			}
			changed := len(result.Changed())
			var refused error
			if changed > 0 && !accept {
				refused = usage(fmt.Errorf("import %s: %s what is trained, so no configuration is written: look at "+
					"them above, and take them with --accept",
					words.ShellQuote(args[0]), map[bool]string{true: "1 key changes",
						false: fmt.Sprintf("%d keys change", changed)}[changed == 1]))
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
	cmd.Flags().StringVar(&from, "from", "", "the `PROGRAM` that wrote the file: "+strings.Join(importer.Names(), ", "))
	pathVar(cmd, &out, "out", "o", "write the configuration to a new `FILE`; - is standard output")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the configuration and the translation of each key as JSON")
	cmd.Flags().BoolVar(&accept, "accept", false, "write the configuration even if keys would change the training")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "list every translated key")
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
	return importer.Translate(in, importer.Options{Kind: importKind, Own: config.OwnKey,
		ReadFile: func(name string) ([]byte, error) {
			if filepath.IsAbs(name) || !filepath.IsLocal(filepath.FromSlash(name)) {
				return nil, fmt.Errorf("%s lies elsewhere", name)
			}
			first, err := readBounded(filepath.Join(dir, filepath.FromSlash(name)), config.MaxBytes)
			if err == nil {
				return first, nil
			}
			// LLaMA-Factory resolves paths against its working folder
			return readBounded(filepath.FromSlash(name), config.MaxBytes)
		}}), nil
}

// otherTraining refuses a file of preference training, reward modelling or another objective that cannot be translated:
// the remaining keys would train something else.
func otherTraining(r importer.Result) error {
	if r.Refused != "" {
		return fmt.Errorf("%s is another kind of training; a run here trains on rows of text (sft, pt), preferences "+
			"(dpo, ipo, cpo, simpo, orpo, kto, rm), rewards (grpo, rloo) or a teacher, so nothing is "+
			"translated", r.Refused)
	}
	return nil
}

// readBounded reads a file, at most one byte more than limit.
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
	k, rest := config.Root.Find(path)
	if k == config.Root || rest != "" {
		return importer.None
	}
	return map[config.Kind]importer.Kind{config.KindText: importer.TextKind, config.KindWhole: importer.Whole,
		config.KindUnsigned: importer.Whole, config.KindNumber: importer.Number,
		config.KindTruth: importer.Truth, config.KindList: importer.List, config.KindTable: importer.Table,
		config.KindRows: importer.Rows}[k.Kind]
}

// placeholders lists the keys that every run needs and that a file may lack.
var placeholders = []config.Commented{
	{Path: "base_model", Value: "./model", After: "write the model's folder or its name"},
	{Path: "dataset.path", Value: "data.jsonl", After: "write the path of your rows"},
	{Path: "output_dir", Value: "runs/imported", After: "the run's folder"},
}

// importedConfig returns the configuration of a translation. It passes our own checks: keys that they refuse are
// removed. fill lists the keys that the user must set.
func importedConfig(path string, r *importer.Result) (text []byte, fill []string, err error) {
	for range len(r.Settings) + 1 {
		text, fill = writeImported(path, *r)
		_, problems := config.Merge("the translation", text, nil, nil)
		if len(problems) == 0 {
			return text, fill, nil
		}
		refused := false
		for _, p := range problems {
			said := strings.TrimPrefix(p.Text, config.KeyOf(p.Text)+": ")
			for at := config.KeyOf(p.Text); at != "" && !refused; at = at[:max(0, strings.LastIndexAny(at, ".["))] {
				refused = r.Refuse(at, "refused here: "+said)
			}
		}
		if !refused {
			return nil, nil, &config.Invalid{Name: "the translation", Problems: problems}
		}
	}
	return nil, nil, errors.New("no configuration is left that this program accepts")
}

func writeImported(path string, r importer.Result) (text []byte, fill []string) {
	has := map[string]bool{}
	var values []config.Commented
	for _, s := range r.Settings {
		has[s.Path] = true
		if strings.HasSuffix("."+s.Path, "."+s.From) {
			s.From = "" // the source's own name for the key
		}
		values = append(values, config.Commented{Path: s.Path, Value: s.Value, After: s.From})
	}
	for _, p := range placeholders {
		if has[p.Path] || p.Path == "dataset.path" && has["dataset.sources"] {
			continue
		}
		fill = append(fill, p.Path)
		p.After = "not in the file: " + p.After
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
	head := []string{fmt.Sprintf("Translated from %s of %s; defaults are those of %s.", filepath.Base(path),
		r.Program.Title, r.Program.Version),
		"Behind a value stands the key that it comes from, where that has another name.", ""}
	return config.CommentedYAML(head, values, missing), fill
}

// classTitle returns a class as a heading.
func classTitle(c importer.Class) string { return strings.ToUpper(string(c[:1])) + string(c[1:]) }

// printImport lists the outcome for each key, beginning with keys that change the training.
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
		list(classTitle(class), class != importer.Nothing || verbose, func(e importer.Entry) bool {
			return e.Class == class
		})
	}
	list("Translated", verbose, func(e importer.Entry) bool { return e.Class == "" })
	if len(fill) > 0 {
		fmt.Fprintf(w, "\nto write by hand: %s\n", strings.Join(fill, ", "))
	}
	if out != "" && out != "-" {
		fmt.Fprintf(w, "\nwritten  %s\nnext     trainer plan %s\n", out, words.ShellQuote(out))
	}
	return w.Flush()
}

// importLine returns an entry as one line.
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
	return safetext.OneLine(line)
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
