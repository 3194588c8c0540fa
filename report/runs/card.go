package runs

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/adapter"
)

// CardMark is the line that marks a model card as written by this program, so that it may be replaced.
const CardMark = "<!-- Written by tierlora from the run's files. Without this line the card counts as yours and is never replaced. -->"

// Card describes the subject of a model card, besides the run.
type Card struct {
	Repo    string // org/name
	Base    string // name of the base model that the adapter or the run has
	Merged  bool   // the model's weights include the adapter; else an adapter in PEFT's format
	Licence string // "" = not known; the card then has no licence
}

var hubName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$`)

// IsHubName reports whether a name has the form ORG/NAME of a repository.
func IsHubName(name string) bool { return hubName.MatchString(name) }

// shownSettings lists the keys of a run's configuration that a card shows, with their names for people.
var shownSettings = [][2]string{
	{"adapter", "method"}, {"lora.r", "rank"}, {"lora.alpha", "alpha"}, {"lora.dropout", "dropout"}, {"lora.use_rslora", "rank-stabilised"},
	{"lora.target_modules", "adapted layers"}, {"quantization.type", "base weights stored as"}, {"quantization.double_quant", "double quantisation"},
	{"training.epochs", "epochs"}, {"training.max_steps", "steps asked for"}, {"training.batch_size", "batch size"},
	{"training.gradient_accumulation_steps", "gradient accumulation steps"}, {"training.optimizer", "optimizer"}, {"training.learning_rate", "learning rate"},
	{"training.lr_scheduler", "schedule"}, {"training.warmup_ratio", "warm-up ratio"}, {"training.weight_decay", "weight decay"},
	{"training.max_grad_norm", "largest gradient norm"}, {"dataset.format", "data format"}, {"dataset.max_length", "longest row, tokens"},
	{"dataset.packing", "packing"}, {"seed", "seed"},
}

// Markdown returns a model card: front matter as the hub reads it, and the results in the run's files. For a nil run it
// only names the base model.
func (c Card) Markdown(r *Run) string {
	var b strings.Builder
	front := func(key, value string) { fmt.Fprintf(&b, "%s: %s\n", key, yamlText(value)) }
	b.WriteString("---\n")
	if hubName.MatchString(c.Base) {
		front("base_model", c.Base)
		front("base_model_relation", map[bool]string{false: "adapter", true: "finetune"}[c.Merged])
	}
	front("library_name", map[bool]string{false: "peft", true: "transformers"}[c.Merged])
	if c.Licence != "" {
		front("license", c.Licence)
	}
	front("pipeline_tag", "text-generation")
	b.WriteString("tags:\n")
	for _, tag := range methodTags(r) {
		fmt.Fprintf(&b, "- %s\n", tag)
	}
	fmt.Fprintf(&b, "---\n\n%s\n\n# %s\n\n", CardMark, plain(c.Repo[strings.LastIndexByte(c.Repo, '/')+1:]))
	fmt.Fprintf(&b, "%s %s, trained with [tierlora](https://github.com/tierlora/tierlora).\n\n", c.what(r),
		code(c.Base))
	c.use(&b)
	if r == nil {
		return b.String()
	}
	if rows := c.results(r); len(rows) > 0 {
		table(&b, "Results", rows)
	}
	table(&b, "Training", chosenSettings(r))
	table(&b, "Data", data(r))
	table(&b, "Environment", environment(r))
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// what returns the card's first words: the method that trained, and whether the repository has its adapter or a model.
func (c Card) what(r *Run) string {
	whole, method := false, ""
	if r != nil {
		m, _, err := adapter.Lookup(setting(r, "adapter"))
		whole, method = err == nil && m.Whole(), adapter.Title(setting(r, "adapter"))
	}
	article := "A"
	if method == "" || strings.ContainsAny(method[:1], "AEIO") {
		article = "An"
	}
	kind := strings.TrimSpace(method + " adapter")
	switch {
	case !c.Merged:
		return article + " " + kind + " in PEFT's format for"
	case whole:
		return "A model with all or some weights fine-tuned, made from"
	}
	return "A model whose weights hold " + strings.ToLower(article) + " " + kind + ", made from"
}

// methodTags returns the tags of a card: the method of the run, in lower case, and lora for the methods that are LoRA
// over other base weights or with more parameters.
func methodTags(r *Run) []string {
	tags := []string{"tierlora"}
	if r == nil {
		return tags
	}
	name := setting(r, "adapter")
	if title := strings.ToLower(adapter.Title(name)); title != "" {
		tags = append(tags, title)
	}
	if plain := adapter.Quantised[name]; plain != "" {
		tags = append(tags, plain)
	}
	if strings.HasSuffix(name, "dora") {
		tags = append(tags, "lora")
	}
	slices.Sort(tags)
	return tags
}

func (c Card) use(b *strings.Builder) {
	b.WriteString("## Use\n\n```python\n")
	if c.Merged {
		fmt.Fprintf(b, "from transformers import AutoModelForCausalLM, AutoTokenizer\nmodel = AutoModelForCausalLM.from_pretrained(%q)\ntokenizer = AutoTokenizer.from_pretrained(%q)\n", c.Repo, c.Repo)
	} else {
		base := "BASE_MODEL"
		if hubName.MatchString(c.Base) {
			base = c.Base
		}
		fmt.Fprintf(b, "from peft import PeftModel\nfrom transformers import AutoModelForCausalLM\nmodel = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(%q), %q)\n", base, c.Repo)
	}
	b.WriteString("```\n\n")
}

func (c Card) results(r *Run) (rows [][2]string) {
	add := func(what string, v float64) {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			rows = append(rows, [2]string{what, strconv.FormatFloat(v, 'g', 6, 64)})
		}
	}
	if n := len(r.Evals); n > 0 {
		add("held-out loss before training or at the first evaluation (step "+strconv.Itoa(r.Evals[0].Step)+")", r.Evals[0].Loss)
		add("held-out loss at the end (step "+strconv.Itoa(r.Evals[n-1].Step)+")", r.Evals[n-1].Loss)
		if r.likelihood() {
			add("held-out perplexity at the end", math.Exp(r.Evals[n-1].Loss))
		}
	}
	if r.End != nil {
		add("training loss, mean of the run", r.End.Loss)
		add("steps", float64(r.End.Step))
	} else if n := len(r.Steps); n > 0 {
		add("training loss at step "+strconv.Itoa(r.Steps[n-1].Step), r.Steps[n-1].Loss)
	}
	return rows
}

// chosenSettings returns the shown settings of a run. Keys of LoRA's section stand for those of the method's section.
func chosenSettings(r *Run) (rows [][2]string) {
	section := "lora."
	if m, _, err := adapter.Lookup(setting(r, "adapter")); err == nil {
		section = m.Section(adapter.Sections{}).Key("")
	}
	for _, s := range shownSettings {
		key := s[0]
		if name, own := strings.CutPrefix(key, "lora."); own {
			key = section + name
		}
		if v := setting(r, key); v != "" {
			rows = append(rows, [2]string{s[1], code(v)})
		}
	}
	return rows
}

func data(r *Run) (rows [][2]string) {
	if d := r.Data; d != nil {
		rows = append(rows, [2]string{"rows", strconv.Itoa(d.Kept)}, [2]string{"trained tokens of an epoch", strconv.FormatInt(d.TrainedTokens, 10)})
	}
	if m := r.Manifest; m != nil && m.Data != "" {
		rows = append(rows, [2]string{"SHA-256 of tokens and labels", code(m.Data)})
	}
	return rows
}

func environment(r *Run) (rows [][2]string) {
	m := r.Manifest
	if m == nil {
		return nil
	}
	add := func(what, v string) {
		if v != "" {
			rows = append(rows, [2]string{what, code(v)})
		}
	}
	add("program", strings.TrimSpace("tierlora "+m.Program))
	add("commit", m.Commit)
	add("device", m.Device)
	add("precision", m.Precision)
	add("platform", m.Platform)
	add("SHA-256 of the base model's weights", m.Base)
	add("SHA-256 of the configuration", m.Config)
	add("SHA-256 of the adapter's weights as trained", m.Adapter())
	return rows
}

func setting(r *Run, key string) string {
	for _, s := range r.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

func table(b *strings.Builder, title string, rows [][2]string) {
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(b, "## %s\n\n| | |\n|---|---|\n", title)
	for _, r := range rows {
		fmt.Fprintf(b, "| %s | %s |\n", r[0], r[1])
	}
	b.WriteString("\n")
}

// plain returns a text on one line that Markdown takes literally.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) || strings.ContainsRune("`|<>[]*_#\\", r) && r != '_' {
			return ' '
		}
		return r
	}, text)
}

// code is text as Markdown's code on one line of a table.
func code(text string) string {
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '`' || r == '|':
			return '\''
		case !strconv.IsPrint(r):
			return ' '
		}
		return r
	}, text))
	if runes := []rune(text); len(runes) > 300 {
		text = string(runes[:300]) + "..."
	}
	if text == "" {
		return "-"
	}
	return "`" + text + "`"
}

// yamlText returns a value of front matter: plain if YAML reads it back unchanged, else quoted.
func yamlText(text string) string {
	if regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._/-]*$`).MatchString(text) {
		return text
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return `""`
	}
	return string(quoted)
}
