package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/internal/filename"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/model/hub"
	"github.com/tierlora/tierlora/report/runs"
	"github.com/tierlora/tierlora/session"
)

type pushFlags struct {
	repo, run, licence, message   string
	base                          string
	public, dryRun, files, asJSON bool
}

// runFiles lists the files of a run that --with-run pushes too.
var runFiles = []string{"config.yaml", "data_report.json", "metrics.jsonl", "run_manifest.json"}

const cardName = "README.md"

func newPush(c *console) *cobra.Command {
	o := &pushFlags{}
	cmd := &cobra.Command{
		Use:   "push DIR --repo OWNER/NAME",
		Short: "Push an adapter or model to the Hugging Face hub, with a model card",
		Long: `Push an adapter or a merged model to a repository of the Hugging Face hub. push creates the repository if needed,
private unless --public is given, and writes a model card (README.md) from the run's files. It never replaces a card
that a person wrote, in DIR or in the repository. --dry-run lists the files and prints the card without network access.

push uses the token in HF_TOKEN, or that of hf auth login; HF_ENDPOINT names another hub. docs/HUB.md has more.`,
		Example: `  trainer push runs/first --repo me/first --dry-run
  trainer push runs/first --repo me/first
  trainer push merged --repo me/first-merged --run runs/first --license apache-2.0 --public`,
		Args: oneArgument("the folder of an adapter or model"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, end := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer end()
			files, card, err := o.gather(filename.ExpandHome(args[0]))
			if err != nil {
				return usage(err)
			}
			if base, err := adapter.BaseModel(filename.ExpandHome(args[0])); err == nil && o.base == "" &&
				!runs.IsHubName(repoOf(base)) {
				c.say("note: adapter_config.json names the base model %q, which others do not have: --base-model "+
					"ORG/NAME names it as the hub does", base)
			}
			warnOfSecrets(c, files)
			if o.dryRun {
				return o.show(c, files, card)
			}
			options := c.hub()
			options.Progress = c.uploading()
			p, err := hub.Push(ctx, o.repo, hub.PushOptions{Options: options, Public: o.public, Message: o.message,
				Files: files, Card: isOurs})
			if err != nil {
				return err
			}
			if o.asJSON {
				return writeJSON(c.out, p)
			}
			return printPushed(c, p)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.repo, "repo", "", "repository, `OWNER/NAME`")
	pathVar(cmd, &o.run, "run", "",
		"output folder of the run, for the model card: a `DIR`; default: the adapter's folder")
	f.StringVar(&o.base, "base-model", "", "hub `NAME` of the base model for the card and the pushed "+
		"adapter_config.json, if the run used a local folder")
	f.StringVar(&o.licence, "license", "", "`LICENCE` for the model card, such as apache-2.0; default: none stated")
	f.StringVar(&o.message, "message", "Upload with tierlora", "`TEXT` of the commit")
	f.BoolVar(&o.public, "public", false, "make a new repository public")
	f.BoolVar(&o.files, "with-run", false, "push the run's "+strings.Join(runFiles, ", ")+
		" too; they contain local paths")
	f.BoolVar(&o.dryRun, "dry-run", false, "list the files and print the model card; push nothing")
	f.BoolVar(&o.asJSON, "json", false, "print as JSON")
	return cmd
}

// mostSearched is the size in bytes up to which a file is searched for secrets before it is pushed: it covers texts but
// not vocabularies.
const mostSearched = 4 << 20

// warnOfSecrets warns of files that contain what looks like a token, a password or a webhook's address.
func warnOfSecrets(c *console, files []hub.File) {
	for _, f := range files {
		text := f.Data
		if f.Path != "" {
			info, err := os.Stat(f.Path)
			if err != nil || info.Size() > mostSearched || strings.HasSuffix(f.Name, ".safetensors") ||
				f.Name == "tokenizer.json" || f.Name == "vocab.json" {
				continue
			}
			if text, err = regular.ReadFile(f.Path); err != nil {
				continue // the upload reports it
			}
		}
		if lines := safetext.Lines(string(text)); lines != nil {
			c.say("warning: %s, line %d, holds what looks like a secret (a token, a password, the address of a "+
				"webhook): who reads the repository has it; "+
				"remove it and push again, and replace the secret where it was pushed already", f.Name, lines[0])
		}
	}
}

// isOurs reports whether a model card may be overwritten.
func isOurs(card []byte) bool { return bytes.Contains(card, []byte(runs.CardMark)) }

// gather lists the files to push, with the model card.
func (o *pushFlags) gather(dir string) (files []hub.File, card []byte, err error) {
	if o.repo == "" {
		return nil, nil, errors.New("name the repository: --repo OWNER/NAME")
	}
	if !runs.IsHubName(o.repo) {
		return nil, nil, fmt.Errorf("--repo %q is no repository's name: the form is OWNER/NAME", o.repo)
	}
	if o.base != "" && !runs.IsHubName(o.base) {
		return nil, nil, fmt.Errorf("--base-model %q is no name of the hub: the form is ORG/NAME", o.base)
	}
	has := func(name string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err == nil && info.Mode().IsRegular()
	}
	isAdapter := has(adapter.ConfigFile)
	switch {
	case isAdapter && !has(adapter.WeightsFile):
		return nil, nil, fmt.Errorf("%s has %s and no %s: has the run finished?", dir, adapter.ConfigFile,
			adapter.WeightsFile)
	case !isAdapter && !has("config.json"):
		return nil, nil, fmt.Errorf("%s is no folder of an adapter (%s) or of a model (config.json)", dir,
			adapter.ConfigFile)
	}
	if err := plainFiles(dir); err != nil {
		return nil, nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if name := e.Name(); has(name) && name != cardName && o.wanted(name, isAdapter) {
			file := hub.File{Name: name, Path: filepath.Join(dir, name)}
			if name == adapter.ConfigFile && isAdapter && o.base != "" {
				raw, err := regular.ReadFile(file.Path)
				if err != nil {
					return nil, nil, err
				}
				file.Path = ""
				if file.Data, err = export.WithBaseModel(raw, o.base); err != nil {
					return nil, nil, fmt.Errorf("%s: %w", name, err)
				}
			}
			files = append(files, file)
		}
	}
	if !isAdapter && !slices.ContainsFunc(files, func(f hub.File) bool {
		return strings.HasSuffix(f.Name, ".safetensors")
	}) {
		return nil, nil, fmt.Errorf("%s has no weights in SafeTensors", dir)
	}
	if card, err = o.card(dir, isAdapter); err != nil {
		return nil, nil, err
	}
	files = append(files, hub.File{Name: cardName, Data: card})
	slices.SortFunc(files, func(a, b hub.File) int { return strings.Compare(a.Name, b.Name) })
	return files, card, nil
}

// pushedNames lists the small files that loading reads.
var pushedNames = []string{
	"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
	"added_tokens.json", "vocab.json", "merges.txt",
	"tokenizer.model", "chat_template.jinja", "model.safetensors.index.json", dataset.PromptFormatFile,
}

func (o *pushFlags) wanted(name string, isAdapter bool) bool {
	switch {
	case isAdapter && (name == adapter.ConfigFile || name == adapter.WeightsFile):
		return true
	case o.files && slices.Contains(runFiles, name):
		return true
	case !isAdapter && strings.HasSuffix(name, ".safetensors"):
		return true
	}
	return slices.Contains(pushedNames, name) && !(isAdapter && name == "config.json")
}

// card returns the folder's own card if somebody wrote one, else a card made from the run's files.
func (o *pushFlags) card(dir string, isAdapter bool) ([]byte, error) {
	own, err := regular.ReadFile(filepath.Join(dir, cardName))
	if err == nil && !isOurs(own) {
		return own, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	from := o.run
	if from == "" {
		from = dir
	}
	r, err := runs.Read(from)
	if err != nil && (o.run != "" || !errors.Is(err, runs.ErrNoRun)) {
		return nil, err
	}
	card := runs.Card{Repo: o.repo, Merged: !isAdapter, Licence: o.licence}
	if r != nil {
		if r.Settings, err = settingsOf(r.Config); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(from, "config.yaml"), err)
		}
		for _, s := range r.Settings {
			if s.Key == "base_model" {
				card.Base = s.Value
			}
		}
	}
	if isAdapter {
		if base, err := adapter.BaseModel(dir); err == nil {
			card.Base = base
		}
	}
	if o.base != "" {
		card.Base = o.base
	}
	if filepath.IsAbs(card.Base) || strings.HasPrefix(card.Base, ".") || strings.HasPrefix(card.Base, "~") {
		card.Base = filepath.Base(card.Base) // a path is useless elsewhere and reveals this computer's folders
	}
	card.Base = repoOf(card.Base)
	return []byte(card.Markdown(r)), nil
}

// show prints what a push would do.
func (o *pushFlags) show(c *console, files []hub.File, card []byte) error {
	type shown struct {
		Name  string `json:"name"`
		Bytes int64  `json:"bytes"`
	}
	answer := struct {
		Repo    string  `json:"repo"`
		Private bool    `json:"private"` // for a new repository
		Files   []shown `json:"files"`
		Card    string  `json:"card"`
	}{o.repo, !o.public, nil, string(card)}
	for _, f := range files {
		size := int64(len(f.Data))
		if f.Path != "" {
			info, err := os.Stat(f.Path)
			if err != nil {
				return err
			}
			size = info.Size()
		}
		answer.Files = append(answer.Files, shown{f.Name, size})
	}
	if o.asJSON {
		return writeJSON(c.out, answer)
	}
	fmt.Fprintf(c.out, "%s would get these files; nothing was sent\n", o.repo)
	for _, f := range answer.Files {
		fmt.Fprintf(c.out, "  %-34s %s\n", f.Name, session.FormatBytes(f.Bytes))
	}
	_, err := fmt.Fprintf(c.out, "\n%s", card)
	return err
}

func printPushed(c *console, p hub.Pushed) error {
	if p.Created {
		fmt.Fprintf(c.out, "%s: made, %s\n", p.Repo, map[bool]string{true: "private", false: "public"}[p.Private])
	}
	for _, name := range p.Kept {
		c.say("note: the repository's own %s was written by somebody and stays", name)
	}
	for _, name := range p.Ignored {
		c.say("note: the repository's .gitignore leaves out %s", name)
	}
	if len(p.Files) == 0 {
		_, err := fmt.Fprintf(c.out, "%s: it has these files already, nothing was sent\n", p.Repo)
		return err
	}
	_, err := fmt.Fprintf(c.out, "%s: %d file%s in commit %s\n%s\n", p.Repo, len(p.Files), plural(len(p.Files)),
		p.Commit, p.URL)
	return err
}

// uploading returns a function that prints each uploaded file once.
func (c *console) uploading() func(file string, done, total int64) {
	told := map[string]bool{}
	return func(file string, _, total int64) {
		if !told[file] {
			told[file] = true
			c.say("uploading %s, %s", file, session.FormatBytes(total))
		}
	}
}

// repoOf returns a base model's hub name without its revision.
func repoOf(base string) string {
	if name, _ := hub.SplitRevision(base); runs.IsHubName(name) {
		return name
	}
	return base
}
