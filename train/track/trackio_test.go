package track

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func trackioOf(t *testing.T, env map[string]string, r Run) *trackio {
	t.Helper()
	r.Getenv = func(name string) string { return env[name] }
	made, err := NewTrackio(r)
	if err != nil {
		t.Fatal(err)
	}
	return made.(*trackio)
}

// TestTrackioRows: what Trackio's own rows have, under its names: numbers that are not finite are texts, a failure is an
// alert, and a day's run makes few files.
func TestTrackioRows(t *testing.T) {
	dir, root := t.TempDir(), t.TempDir()
	w := trackioOf(t, map[string]string{"TRACKIO_DIR": root}, Run{Dir: dir, Config: Config{RunName: "first"}, Params: []Param{{"seed", "42"}}})
	at := time.Unix(1700000000, 0)
	send := func(e Event) {
		t.Helper()
		if n, err := w.Send(t.Context(), []Event{e}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	send(Event{Kind: KindStart, Time: at})
	steps := 0
	for ; at.Before(time.Unix(1700000000+86400, 0)); at = at.Add(700 * time.Millisecond) {
		steps++
		send(Event{Kind: KindStep, Time: at, Step: steps, Metrics: Metrics{{"loss", math.NaN()}, {"grad_norm", math.Inf(1)}, {"learning_rate", 1e-4}}})
	}
	send(Event{Kind: KindEnd, Time: at, Step: steps, Status: StatusFailed, Error: "no room\nleft"})
	files, err := filepath.Glob(filepath.Join(root, "inbox", w.writer, "*.jsonl"))
	if err != nil || len(files) < 300 || len(files) > 1000 {
		t.Fatal(len(files), err)
	}
	rows := []trackioRow{}
	seen := map[string]bool{}
	for _, name := range files {
		for _, line := range lines(t, name) {
			var r trackioRow
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
			if id := r.LogID + r.AlertID + r.Kind; seen[id] {
				t.Fatalf("%s twice", id)
			} else {
				seen[id] = true
			}
			rows = append(rows, r)
		}
	}
	if first := rows[0]; len(rows) != steps+1 || first.Project != "tierlora" || first.Run != "first" || first.RunID != w.id || first.Timestamp != "2023-11-14T22:13:20.000000+00:00" ||
		string(first.Metrics) != `{"train/loss":"NaN","train/grad_norm":"Infinity","train/learning_rate":0.0001}` || !strings.HasPrefix(string(first.Config), `{"seed":42,"_Created":"2023`) {
		t.Errorf("%d rows, %+v", len(rows), first)
	}
	if last := rows[steps]; last.Kind != "alert" || last.Text != "no room\nleft" || last.Level != "error" || last.AlertID == "" {
		t.Errorf("%+v", last)
	}
}

// TestTrackioPlaces: the folder is the one that the trackio package has in the same environment.
func TestTrackioPlaces(t *testing.T) {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Skip(err)
	}
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"TRACKIO_DIR": "/a", "HF_HOME": "/b"}, "/a"}, {map[string]string{"HF_HOME": "/b"}, filepath.Join("/b", "trackio")},
		{map[string]string{"XDG_CACHE_HOME": "/c"}, filepath.Join("/c", "huggingface", "trackio")}, {nil, filepath.Join(home, ".cache", "huggingface", "trackio")},
	} {
		if got := trackioOf(t, c.env, Run{Dir: t.TempDir()}).root; got != c.want {
			t.Errorf("%v: %s, want %s", c.env, got, c.want)
		}
	}
}

// TestTrackioWithoutRoom: what cannot be written is a failure of the tracker's, and is not tried again.
func TestTrackioWithoutRoom(t *testing.T) {
	root := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(root, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w := trackioOf(t, map[string]string{"TRACKIO_DIR": root}, Run{Dir: t.TempDir()})
	_, err := w.Send(t.Context(), []Event{{Kind: KindEnd, Metrics: Metrics{{"train_loss", 1}}}})
	if permanent := (*Permanent)(nil); !errors.As(err, &permanent) || !strings.Contains(err.Error(), root) {
		t.Error(err)
	}
}
