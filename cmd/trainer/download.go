package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/model/hub"
	"github.com/tierlora/tierlora/session"
)

func newDownload(c *console) *cobra.Command {
	var out string
	var include []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "download ORG/NAME[@REVISION]",
		Short: "Fetch a model or an adapter from the Hugging Face hub",
		Long: `Fetch a model or an adapter into the cache that huggingface_hub uses; every command finds it there by its name. An
interrupted download resumes, and every file's hash is checked. Without --include only the files that loading needs are
fetched. Other commands fetch what they need with --download.`,
		Example: `  trainer download HuggingFaceTB/SmolLM2-135M
  trainer download HuggingFaceTB/SmolLM2-135M@main --out ./SmolLM2-135M
  trainer download me/first --include '*.json' --include README.md`,
		Args: oneArgument("a hub name, ORG/NAME or ORG/NAME@REVISION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, revision, given := strings.Cut(args[0], "@")
			if given && revision == "" {
				return usage(fmt.Errorf("%q names no revision behind the @", args[0]))
			}
			ctx, end := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer end()
			o := c.hub()
			o.Download, o.Revision = true, revision
			got, err := hub.Fetch(ctx, name, o, include)
			if err == nil && out != "" {
				got, err = got.CopyTo(ctx, out)
			}
			if err != nil {
				if ctx.Err() == nil && !errors.Is(err, os.ErrExist) && exitCode(err) != exitUsage {
					err = unfit(err)
				}
				return err
			}
			if asJSON {
				return writeJSON(c.out, got)
			}
			_, err = fmt.Fprintf(c.out, "%s\n%d file%s, %s\n", got.Dir, len(got.Files), plural(len(got.Files)),
				session.FormatBytes(got.Bytes))
			return err
		},
	}
	pathVar(cmd, &out, "out", "", "also copy the files to `DIR`")
	cmd.Flags().StringArrayVar(&include, "include", nil,
		"fetch only files whose path or name matches `PATTERN`, such as '*.json'; may be repeated")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}
