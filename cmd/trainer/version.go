package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/graph"
)

// version is the module's version, or the commit that the binary was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	v := settings["vcs.revision"]
	if v == "" {
		return "devel"
	}
	if settings["vcs.modified"] == "true" {
		v += "+changes"
	}
	return v
}

// buildKind says whether the binary can use a GPU.
func buildKind() string {
	if graph.GPUBuilt {
		return "gpu"
	}
	return "cpu-only"
}

func newVersion(c *console) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return writeJSON(c.out, map[string]string{"version": version(), "build": buildKind(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := fmt.Fprintf(c.out, "trainer %s (%s build, %s, %s/%s)\n", version(), buildKind(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}
