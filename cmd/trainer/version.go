package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/graph"
)

// release and revision are written by a release's linker: -X main.release=1.2.3 -X main.revision=COMMIT.
var release, revision string

// build holds what the toolchain, or a release's linker, wrote into the binary.
type build struct {
	Version string    // version of the module, or the commit
	Commit  string    // "" if the program was built outside of the repository
	Dirty   bool      // files differed from the commit
	At      time.Time // time of the commit; zero if unknown
}

var built = func() build {
	info, ok := debug.ReadBuildInfo()
	if release != "" {
		return build{Version: release, Commit: revision}
	}
	if !ok {
		return build{Version: "unknown"}
	}
	return buildOf(info)
}()

func buildOf(info *debug.BuildInfo) build {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	at, _ := time.Parse(time.RFC3339, settings["vcs.time"]) //nolint:errcheck // zero then
	b := build{At: at, Version: info.Main.Version, Commit: settings["vcs.revision"],
		Dirty: settings["vcs.modified"] == "true"}
	if b.Version != "" && b.Version != "(devel)" {
		return b
	}
	b.Version = "devel"
	if b.Commit != "" {
		b.Version = b.Commit
		if b.Dirty {
			b.Version += "+changes"
		}
	}
	return b
}

// version returns the module's version, or the commit from which the binary was built.
func version() string { return built.Version }

// buildKind returns whether the binary can use a GPU: gpu or cpu-only.
func buildKind() string {
	if graph.GPUBuilt {
		return "gpu"
	}
	return "cpu-only"
}

// versionLine returns the version as one line of text.
func versionLine() string {
	return fmt.Sprintf("trainer %s (%s build, %s, %s/%s)", version(), buildKind(), runtime.Version(), runtime.GOOS,
		runtime.GOARCH)
}

type versionJSON struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"` // "" = not known
	Dirty    bool   `json:"dirty"`
	Build    string `json:"build"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersion(c *console) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  trainer version
  trainer version --json`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return writeJSON(c.out, versionJSON{built.Version, built.Commit, built.Dirty, buildKind(),
					runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := fmt.Fprintln(c.out, versionLine())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}
