//go:build unix

package live

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestLinksLeadNowhere: no run is started in a folder that a link takes out of the folders of the page; a link within
// them is followed, and so is the one that the page itself was given.
func TestLinksLeadNowhere(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.MkdirAll(in("runs/group"), 0o755), os.Mkdir(in("elsewhere"), 0o755), os.Symlink("../elsewhere", in("runs/out")),
		os.Symlink("nothing", in("runs/dangling")), os.Symlink("group", in("runs/in")), os.Symlink("runs", in("link"))); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{"runs", "link"} {
		s := &Server{o: Options{Roots: []string{in(root)}}}
		s.hub = &hub{o: s.o}
		for path, refused := range map[string]bool{
			"new": false, "group/new": false, "a/b/c": false, "in/new": false,
			"out": true, "out/new": true, "out/a/b": true, "dangling": true, "dangling/new": true,
		} {
			if text := s.refusedDir(in(root + "/" + path)); (text != "") != refused {
				t.Errorf("%s/%s: %q", root, path, text)
			}
		}
	}
}
