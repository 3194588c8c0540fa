package main

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/filename"
	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/report/runs"
	"github.com/tierlora/tierlora/train"
)

type reportOptions struct {
	out   string
	title string
	json  bool
}

// mostReported is the most runs that one report compares.
const mostReported = 100

func newReport(c *console) *cobra.Command {
	o := &reportOptions{}
	cmd := &cobra.Command{
		Use:   "report FOLDER...",
		Short: "Write an HTML or Markdown report of one run or several",
		Long: `Write a page from the files of a run: state, loss, learning rate, gradient norm, throughput, memory, data,
configuration, environment. For several runs it overlays the curves, lists what differs, marks the best by evaluation
loss, and draws runs that differ only in their seed as a band. Runs may be finished, stopped, failed or running. FOLDER
is a run's output folder, a sweep's, or a folder of runs (at most 100).

The page is one HTML file that loads nothing from elsewhere. A name that ends in .md gives Markdown; - prints Markdown.`,
		Example: `  trainer report runs/cpu_stories_quick
  trainer report runs
  trainer report runs/a runs/b runs/c --out compared.html --title "Three learning rates"
  trainer report runs/cpu_stories_quick --out -`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > mostReported {
				return usage(fmt.Errorf("%s takes the output folders of 1 to %d runs, got %d", cmd.CommandPath(),
					mostReported, len(args)))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return runReport(c, o, args) },
	}
	cmd.Flags().StringVar(&o.out, "out", "report.html",
		"`FILE` to write: HTML, or Markdown if it ends in .md; - prints Markdown")
	cmd.Flags().StringVar(&o.title, "title", "", "`TITLE` of the page; default: the run's name")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the numbers as JSON; write no page unless --out is given")
	cmd.PreRun = func(cmd *cobra.Command, _ []string) {
		if o.json && !cmd.Flags().Changed("out") {
			o.out = ""
		}
	}
	return cmd
}

func runReport(c *console, o *reportOptions, dirs []string) error {
	out := filename.ExpandHome(o.out)
	markdown := strings.EqualFold(filepath.Ext(out), ".md")
	if out != "" && out != "-" {
		mark := report.Mark
		if markdown {
			mark = report.MarkdownMark
		}
		if ext := strings.ToLower(filepath.Ext(out)); !slices.Contains([]string{".html", ".htm", ".md"}, ext) {
			return usage(fmt.Errorf("--out %s: a page's name ends in .html, or in .md for Markdown", o.out))
		}
		if err := checkPage(out, mark); err != nil {
			return usage(fmt.Errorf("--out %s: %w", o.out, err))
		}
	}
	if o.json && out == "-" {
		return usage(errors.New("--json and --out - both print: name a file for one of them"))
	}
	folders, found, err := runFolders(dirs)
	if err != nil {
		return usage(err)
	}
	if len(folders) > mostReported {
		return usage(
			fmt.Errorf(
				"%s: more than %d runs, which is the most that a page shows: name some of them; trainer ui lists all",
				strings.Join(dirs, " "), mostReported))
	}
	var all []*runs.Run
	for _, dir := range folders {
		r, err := runs.Read(dir)
		if found[dir] && errors.Is(err, runs.ErrNoRun) {
			continue // it only has a file of the same name
		}
		if err != nil {
			return usage(err)
		}
		if r.Settings, err = settingsOf(r.Config); err != nil {
			r.Problems = append(r.Problems, fmt.Sprintf("%s: %v; it is shown as it is", train.ConfigFile, err))
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		return usage(fmt.Errorf("%s: no run was found there", strings.Join(dirs, " ")))
	}
	runs.SetNames(all)
	if o.json {
		answer := struct {
			Runs []runs.Summary `json:"runs"`
			Page string         `json:"page,omitempty"`
		}{Page: out}
		for _, r := range all {
			answer.Runs = append(answer.Runs, r.Summary())
		}
		if err := writeJSON(c.out, answer); err != nil {
			return err
		}
	}
	if out == "" {
		return nil
	}
	page := runs.Page(all, o.title)
	var text bytes.Buffer
	write := page.HTML
	if markdown || out == "-" {
		write = page.Markdown
	}
	if err := write(&text); err != nil {
		return err
	}
	if out == "-" {
		_, err := c.out.Write(text.Bytes())
		return err
	}
	if err := atomicfile.Write(out, text.Bytes()); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	if !o.json {
		for _, r := range all {
			fmt.Fprintf(coloured(c.out), "%s: %s\n", plainText(r.Name), verdictText(r.Verdict(r.Checks()),
				mayColour(c.out)))
		}
		fmt.Fprintf(c.out, "page: %s\n", plainText(out))
	}
	return nil
}

// verdictText formats a verdict for a terminal: failures in red, warnings in amber.
func verdictText(v report.Verdict, colour bool) string {
	text := plainText(v.Text)
	code := map[report.State]string{report.Fail: "31", report.Skip: "33", report.Warn: "33"}[v.State]
	if code == "" || !colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// settingsOf lists the keys of a run's configuration and whether each differs from its default. It includes keys that
// this program does not know.
func settingsOf(config []byte) ([]runs.Setting, error) {
	if len(config) == 0 {
		return nil, nil
	}
	if len(config) > 1<<20 {
		return nil, fmt.Errorf("%d bytes are too many for a configuration", len(config))
	}
	var root yaml.Node
	if err := yaml.Unmarshal(config, &root); err != nil {
		return nil, err
	}
	var all []runs.Setting
	if err := flatten(&root, "", 0, &all); err != nil {
		return nil, err
	}
	defaults := map[string]string{}
	for _, s := range defaultSettings(all) {
		defaults[s.Key] = s.Value
	}
	for i, s := range all {
		value, known := defaults[s.Key]
		all[i].Default, all[i].Changed = value, !known && s.Value != "" || known && value != s.Value
		all[i].Value = safetext.Mask(s.Value)
		if s.Key == "tracking.webhook_url" && s.Value != "" { // written by an earlier version
			all[i].Value = safetext.Address(s.Value)
		}
	}
	return all, nil
}

// defaultSettings returns the defaults for a configuration: those of quantization depend on its type.
func defaultSettings(of []runs.Setting) []runs.Setting {
	spec := train.DefaultSpec()
	for _, s := range of {
		if s.Key == "quantization.type" {
			q := quant.Default()
			if quant.Schemes[s.Value] != nil {
				q = quant.DefaultOf(s.Value)
			}
			spec.Quantization = &q
		}
	}
	var all []runs.Setting
	if err := flatten(config.Node(spec), "", 0, &all); err != nil {
		panic(err) // our own defaults
	}
	return all
}

// flatten lists the leaves of a document as dotted keys. Lists are leaves.
func flatten(n *yaml.Node, path string, depth int, all *[]runs.Setting) error {
	if depth > 20 || len(*all) > 10_000 {
		return errors.New("it is too deep or has too many keys for a configuration")
	}
	switch n.Kind {
	case yaml.DocumentNode:
		for _, child := range n.Content {
			if err := flatten(child, path, depth+1, all); err != nil {
				return err
			}
		}
	case yaml.MappingNode:
		if len(n.Content) == 0 && path != "" {
			*all = append(*all, runs.Setting{Key: path})
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i].Value
			if path != "" {
				key = path + "." + key
			}
			if err := flatten(n.Content[i+1], key, depth+1, all); err != nil {
				return err
			}
		}
	case yaml.AliasNode:
		return errors.New("it has an alias, which a run does not write")
	case yaml.SequenceNode:
		var parts []string
		for _, item := range n.Content {
			var inner []runs.Setting
			if err := flatten(item, "", depth+1, &inner); err != nil {
				return err
			}
			var words []string
			for _, s := range inner {
				if s.Key != "" {
					words = append(words, s.Key+": "+s.Value)
				} else {
					words = append(words, s.Value)
				}
			}
			parts = append(parts, strings.Join(words, ", "))
		}
		*all = append(*all, runs.Setting{Key: path, Value: strings.Join(parts, "; ")})
	default:
		value := n.Value
		if n.Tag == "!!null" {
			value = ""
		}
		*all = append(*all, runs.Setting{Key: path, Value: value})
	}
	return nil
}
