package track

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
)

// TrackioFile is the file in the output folder that keeps the run's id.
const TrackioFile = "trackio.json"

// trackio writes a run as the trackio package does if it cannot write its database: as files of JSON lines in the inbox
// of its folder, which its dashboard imports and removes.
type trackio struct {
	run     Run
	root    string // Trackio's folder
	project string
	id      string
	writer  string // folder of this process in the inbox
	files   int
	rows    [][]byte // rows that are not in a file yet
	began   time.Time
	written time.Time
}

// trackioRow is a line of the inbox: a metric, or the alert of a failed run.
type trackioRow struct {
	Version   int             `json:"v"`
	Kind      string          `json:"kind"`
	Project   string          `json:"project"`
	Run       string          `json:"run"`
	RunID     string          `json:"run_id"`
	Metrics   json.RawMessage `json:"metrics,omitempty"`
	Step      int             `json:"step"`
	Timestamp string          `json:"timestamp"`
	Config    json.RawMessage `json:"config,omitempty"`
	LogID     string          `json:"log_id,omitempty"` // a line with a known id is not imported again
	Title     string          `json:"title,omitempty"`
	Text      string          `json:"text,omitempty"`
	Level     string          `json:"level,omitempty"`
	AlertID   string          `json:"alert_id,omitempty"`
}

// NewTrackio returns the tracker of report_to: trackio.
func NewTrackio(r Run) (Tracker, error) {
	t := &trackio{run: r, project: r.Experiment, root: r.Getenv("TRACKIO_DIR")}
	if t.project == "" {
		t.project = "tierlora"
	}
	if t.root != "" {
		return t, nil
	}
	home := r.Getenv("HF_HOME")
	if home == "" {
		cache := r.Getenv("XDG_CACHE_HOME")
		if cache == "" {
			user, err := os.UserHomeDir()
			if err != nil {
				return nil, fmt.Errorf("training.report_to: trackio: %w: set TRACKIO_DIR to the folder that `trackio "+
					"show` reads", err)
			}
			cache = filepath.Join(user, ".cache")
		}
		home = filepath.Join(cache, "huggingface")
	}
	t.root = filepath.Join(home, "trackio")
	return t, nil
}

// Notice says where the run is written, since that is outside of its output folder.
func (t *trackio) Notice() string {
	return fmt.Sprintf("tracking: trackio: the run is written to %s; look at it with: trackio show --project %s",
		filepath.Join(t.root, "inbox"), t.project)
}

func (t *trackio) Send(_ context.Context, events []Event) (int, error) {
	if t.id == "" {
		if err := t.open(events[0].Time); err != nil {
			return 0, &Permanent{err}
		}
	}
	now := t.began
	urgent := false
	for _, e := range events {
		t.note(e)
		now, urgent = e.Time, urgent || e.Kind == KindEnd
	}
	// Write a file at most every two seconds, and less often in longer runs: a run of a day makes less than a thousand
	// files.
	if len(t.rows) == 0 || !urgent && now.Sub(t.written) < max(2*time.Second, now.Sub(t.began)/100) {
		return len(events), nil
	}
	if err := t.write(); err != nil {
		return 0, &Permanent{err}
	}
	t.written = now
	return len(events), nil
}

// open finds the run's id: a resumed run keeps the id in its output folder.
func (t *trackio) open(at time.Time) error {
	t.began, t.written = at, at
	keep := filepath.Join(t.run.Dir, TrackioFile)
	id := ""
	if t.run.Done > 0 {
		id = readWandbID(keep)
	}
	if id == "" {
		id = newWandbID() + newWandbID()
	}
	data, err := json.Marshal(map[string]string{"run_id": id})
	if err == nil {
		err = atomicfile.Write(keep, data)
	}
	if err != nil {
		return fmt.Errorf("keep the run's id: %w", err)
	}
	t.id, t.writer = id, id+"-"+newWandbID()
	return nil
}

// note adds an event's rows. The id of a row contains its step, so that steps repeated by a resumed run are imported
// once.
func (t *trackio) note(e Event) {
	row := trackioRow{Version: 1, Kind: "metric", Project: t.project, Run: t.run.RunName, RunID: t.id, Step: e.Step,
		Timestamp: e.Time.UTC().Format("2006-01-02T15:04:05.000000+00:00"), LogID: fmt.Sprintf("%s-%s-%d", t.id, e.Kind,
			e.Step)}
	if len(e.Metrics) > 0 {
		row.Metrics = trackioMetrics(e.Metrics)
		if t.files == 0 && len(t.rows) == 0 {
			row.Config = t.config()
		}
		t.add(row)
	}
	if e.Status == StatusFailed {
		row.Kind, row.Metrics, row.Config, row.AlertID, row.LogID = "alert", nil, nil, row.LogID, ""
		row.Title, row.Text, row.Level = "the run failed", e.Error, "error"
		t.add(row)
	}
}

func (t *trackio) add(row trackioRow) {
	if line, err := json.Marshal(row); err == nil { // every row can be encoded as JSON
		t.rows = append(t.rows, line)
	}
}

// trackioMetrics returns numbers under transformers' names. Numbers that are not finite become strings, as in Trackio.
func trackioMetrics(all Metrics) json.RawMessage {
	return object(all, func(m Metric) (string, string) {
		text := numberJSON(m.Value)
		if !finite(m.Value) {
			text = jsonText(text)
		}
		return tag(m.Name), text
	})
}

// config returns the effective configuration, key by key, with Trackio's own entries.
func (t *trackio) config() json.RawMessage {
	all := append([]Param{}, t.run.Params...)
	for name, value := range t.run.Tags {
		all = append(all, Param{"tags." + name, value})
	}
	all = append(all, Param{"_Created", t.began.UTC().Format(time.RFC3339Nano)})
	return object(all, func(p Param) (string, string) { return p.Key, paramJSON(p.Value) })
}

// object returns a JSON object in the order of a list.
func object[T any](list []T, of func(T) (key, value string)) json.RawMessage {
	b := bytes.NewBufferString("{")
	for i, x := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		key, value := of(x)
		b.WriteString(jsonText(key) + ":" + value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// write writes the rows to a file. Trackio recognises files by their suffix, and removes the folder when it is empty.
func (t *trackio) write() error {
	dir := filepath.Join(t.root, "inbox", t.writer)
	err := os.MkdirAll(dir, 0o755)
	for range 3 {
		if err != nil {
			break
		}
		data := append(bytes.Join(t.rows, []byte("\n")), '\n')
		if err = atomicfile.Write(filepath.Join(dir, fmt.Sprintf("%08d.jsonl", t.files)), data); err == nil {
			t.files++
			t.rows = nil
			return nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			break
		}
		err = os.MkdirAll(dir, 0o755)
	}
	return fmt.Errorf("write %s: %w", dir, err)
}

func (t *trackio) Close() error { return nil }
