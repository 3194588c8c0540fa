package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/configs"
)

// completionHow says how each shell learns the program's words.
var completionHow = map[string]string{
	"bash":       "  source <(trainer completion bash)",
	"zsh":        "  source <(trainer completion zsh)",
	"fish":       "  trainer completion fish | source",
	"powershell": "  trainer completion powershell | Out-String | Invoke-Expression",
}

// addCompletion adds the command that prints a shell's completion script.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	cmd, _, err := root.Find([]string{"completion"})
	if err != nil {
		return // cobra was told to leave it out
	}
	cmd.Short = "Print a script that completes commands, flags and configurations in a shell"
	cmd.Example = completionHow["bash"] + "\n" + completionHow["fish"]
	cmd.Args, cmd.RunE = noArguments, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	for _, sub := range cmd.Commands() {
		sub.Example = completionHow[sub.Name()]
		sub.Args = noArguments
	}
}

// completeConfigs completes --config and the word in its place with files and the built-in configurations.
func completeConfigs(cmd *cobra.Command) {
	complete := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return configs.Names(), cobra.ShellCompDirectiveDefault
	}
	cmd.ValidArgsFunction = complete
	if err := cmd.RegisterFlagCompletionFunc("config", complete); err != nil {
		panic(fmt.Sprintf("%s: %v", cmd.Name(), err)) // the flag was made just before
	}
}

// completeSet completes --set: keys, and behind = the values of those that have few.
func completeSet(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	name, _, value := strings.Cut(word, "=")
	if !value {
		var keys []string
		for _, k := range config.Root.Leaves() {
			if k.Kind != config.KindRows && strings.HasPrefix(k.Path, word) {
				keys = append(keys, k.Path+"=\t"+k.About)
			}
		}
		return keys, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	k, rest := config.Root.Find(name)
	if rest != "" || k == config.Root {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	values := k.Choices
	if k.Kind == config.KindTruth {
		values = []string{"true", "false"}
	}
	if values == nil {
		return nil, cobra.ShellCompDirectiveDefault // it may name a file
	}
	var words []string
	for _, text := range values {
		if text != "" && strings.HasPrefix(name+"="+text, word) {
			words = append(words, name+"="+text)
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// fixedWords completes a flag with one of a few words.
func fixedWords(words ...string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// must is for errors that only a mistake of this program makes.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
