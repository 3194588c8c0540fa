package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/configs"
)

// completionHow maps each shell to instructions that install the completion script.
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
		return // cobra is configured without completion
	}
	cmd.Short = "Print a script that completes commands, flags and configurations in a shell"
	cmd.Example = completionHow["bash"] + "\n" + completionHow["fish"]
	cmd.Args, cmd.RunE = noArguments, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	for _, sub := range cmd.Commands() {
		sub.Example = completionHow[sub.Name()]
		sub.Args = noArguments
	}
}

// completeConfigs completes --config, and the argument in its place, with files and built-in configurations.
func completeConfigs(cmd *cobra.Command) {
	complete := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return configs.Names(), cobra.ShellCompDirectiveDefault
	}
	cmd.ValidArgsFunction = complete
	if err := cmd.RegisterFlagCompletionFunc("config", complete); err != nil {
		panic(fmt.Sprintf("%s: %v", cmd.Name(), err)) // the flag was defined just before
	}
}

// completeSet completes --set: keys, and after = the values of keys that have few values.
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
		return nil, cobra.ShellCompDirectiveDefault // the value may be a file name
	}
	var words []string
	for _, text := range values {
		if text != "" && strings.HasPrefix(name+"="+text, word) {
			words = append(words, name+"="+text)
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// fixedWords completes a flag with one of the given words.
func fixedWords(words ...string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// must panics on an error that only a bug of this program can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
