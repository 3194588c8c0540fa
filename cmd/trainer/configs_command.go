package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/filename"
)

func newConfigs(c *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "configs",
		Short: "List the built-in configurations, or write one out",
		Example: `  trainer configs
  trainer configs write cpu_stories_quick run.yaml`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			for _, name := range append(configs.Names(), configs.Examples()...) {
				text, _ := configs.Read(name)
				if _, err := fmt.Fprintf(c.out, "%-32s %s\n", name, headline(text)); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "write NAME [FILE]",
		Short: "Write a built-in configuration to a file, to be changed; - writes to standard output",
		Example: `  trainer configs write cpu_stories_quick
  trainer configs write cpu_stories_quick run.yaml`,
		Args: func(cmd *cobra.Command, args []string) error { return usage(cobra.MaximumNArgs(2)(cmd, args)) },
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(fmt.Errorf("name a built-in configuration: %s", strings.Join(configs.Names(), ", ")))
			}
			name := strings.TrimSuffix(args[0], ".yaml")
			text, ok := configs.Read(name)
			if !ok {
				return usage(fmt.Errorf("there is no built-in configuration %q; there are %s", args[0],
					strings.Join(configs.Names(), ", ")))
			}
			path := filepath.Base(name) + ".yaml"
			if len(args) == 2 {
				path = filename.ExpandHome(args[1])
			}
			text = withoutSchemaLine(text)
			if path == "-" {
				_, err := c.out.Write(text)
				return err
			}
			return writeNew(path, text)
		},
	})
	return cmd
}

// headline returns the first sentence of a configuration's opening comment.
func headline(text []byte) string {
	var words []string
	for line := range strings.Lines(string(withoutSchemaLine(text))) {
		line, comment := strings.CutPrefix(strings.TrimSpace(line), "#")
		if !comment || line == "" {
			break
		}
		words = append(words, strings.Fields(line)...)
	}
	sentence, _, _ := strings.Cut(strings.Join(words, " "), ". ")
	return strings.TrimSuffix(sentence, ".")
}

// withoutSchemaLine removes the line that names the schema for editors: its path is right in this repository only.
func withoutSchemaLine(text []byte) []byte {
	if !bytes.HasPrefix(text, []byte(config.SchemaLine)) {
		return text
	}
	_, rest, _ := bytes.Cut(text, []byte("\n"))
	return rest
}

// writeNew creates a file and fails if it exists. After an error it leaves no file.
func writeNew(path string, data []byte) error {
	f, err := atomicfile.Create(path, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return usage(fmt.Errorf("%s is there already; name another file", path))
	}
	if err != nil {
		return usage(fmt.Errorf("write the configuration: %w", err))
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return atomicfile.Room(err, path, int64(len(data)))
}

func newConfigSchema(c *console) *cobra.Command {
	return &cobra.Command{
		Use:   "config-schema",
		Short: "Print the JSON schema of configurations, for editors and checkers",
		Long: "Print the JSON schema (draft 7) of configurations: every key with type, default, values and meaning.\n" +
			"An editor with a YAML language server completes and checks a configuration that begins with\n\n" +
			"  # yaml-language-server: $schema=config.schema.json",
		Example: "  trainer config-schema > config.schema.json",
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			return config.WriteJSONSchema(c.out)
		},
	}
}
