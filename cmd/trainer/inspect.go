package main

import "github.com/spf13/cobra"

func newInspect(c *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect",
		Short: "Show data, tokens, steps, a model, a chat template or an image",
		Example: `  trainer inspect data --config cpu_stories_quick.yaml
  trainer inspect model --model embedded:stories260K`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newInspectTokens(c), newInspectData(c), newInspectSteps(c), newInspectModel(c),
		newInspectTemplate(c), newInspectImage(c))
	return cmd
}
