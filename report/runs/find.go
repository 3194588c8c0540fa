package runs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/journal"
	"github.com/tierlora/tierlora/train/replay"
)

// Bounds of a search for runs.
const (
	mostFolders = 5_000
	mostDepth   = 3
)

// IsRun reports whether a folder holds a file that a run writes first. Read may still find that it holds no run.
func IsRun(dir string) bool {
	return holds(dir, train.MetricsFile, train.PlanReportFile, replay.ManifestFile, checkpoint.LockFile, journal.StatusFile)
}

// IsTaken reports whether no new run may write into a folder. The log and the status of a failed start do not count.
func IsTaken(dir string) bool {
	_, held := HeldBy(dir)
	return held || holds(dir, train.MetricsFile, train.PlanReportFile, replay.ManifestFile)
}

func holds(dir string, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err == nil && info.Mode().IsRegular()
	})
}

// Changed returns the latest modification time of the files that a run writes last; the zero time if there are none.
func Changed(dir string) (last time.Time) {
	for _, name := range []string{train.MetricsFile, train.PlanReportFile, replay.ManifestFile, journal.StatusFile} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}

// Find returns the folders of runs among roots and up to three levels below them, in the order of their names. If there
// are more than most, it keeps those that changed last. It follows no links, and searches neither runs nor folders
// whose names begin with a dot.
func Find(roots []string, most int) []string {
	var found []string
	folders := 0
	var walk func(dir string, depth int)
	walk = func(dir string, depth int) {
		if folders++; folders > mostFolders {
			return
		}
		if IsRun(dir) {
			if !slices.Contains(found, dir) {
				found = append(found, dir)
			}
			return
		}
		entries, err := os.ReadDir(dir)
		if err != nil || depth == mostDepth {
			return
		}
		for _, e := range entries {
			if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
				walk(filepath.Join(dir, e.Name()), depth+1)
			}
		}
	}
	for _, root := range roots {
		walk(filepath.Clean(root), 0)
	}
	if len(found) <= most {
		return found
	}
	changed := map[string]time.Time{}
	for _, dir := range found {
		changed[dir] = Changed(dir)
	}
	newest := slices.Clone(found)
	slices.SortStableFunc(newest, func(a, b string) int { return changed[b].Compare(changed[a]) })
	kept := map[string]bool{}
	for _, dir := range newest[:max(most, 0)] {
		kept[dir] = true
	}
	return slices.DeleteFunc(found, func(dir string) bool { return !kept[dir] })
}
