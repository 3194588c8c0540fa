package track

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// wandbRun is a run that goes on after step 300, as the tracker writes it.
func wandbRun(t *testing.T, env map[string]string) (dir string, data []byte) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, WandbDir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, WandbDir, wandbIDFile), []byte(`{"run_id": "abc12345"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	w, err := NewWandb(Run{Dir: dir, Done: 300, Getenv: func(name string) string { return env[name] },
		Config: Config{Experiment: "bots", RunName: "run", Tags: map[string]string{"team": "nlp"}},
		Params: []Param{{"seed", "42"}, {"device", "cpu"}, {"training.bf16", "true"}, {"training.learning_rate", "0.0001"}}})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1700000000, 250e6)
	for _, e := range []Event{
		{Kind: KindStart, Time: at, Step: 300},
		{Kind: KindStep, Time: at.Add(1250 * time.Millisecond), Step: 301, Metrics: Metrics{{"loss", 2.5}, {"learning_rate", 1e-4}}},
		{Kind: KindEval, Time: at.Add(1750 * time.Millisecond), Step: 301, Metrics: Metrics{{"eval_loss", math.NaN()}}},
		{Kind: KindSave, Time: at.Add(2 * time.Second), Step: 301},
		{Kind: KindEnd, Time: at.Add(2500 * time.Millisecond), Step: 301, Metrics: Metrics{{"train_loss", 2.25}}, Status: StatusStopped},
	} {
		if n, err := w.Send(t.Context(), []Event{e}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, WandbDir, "offline-run-*-abc12345", "run-abc12345.wandb"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if data, err = os.ReadFile(files[0]); err != nil {
		t.Fatal(err)
	}
	return dir, data
}

var wandbEnv = map[string]string{"WANDB_ENTITY": "team", "WANDB_NAME": "first", "WANDB_RUN_GROUP": "g", "WANDB_JOB_TYPE": "sft", "WANDB_NOTES": "a note",
	"WANDB_TAGS": "x y, ,team:nlp", "WANDB_MODE": "online"}

// TestWandbFileEqualsThePackages: the bytes that the wandb package's own messages and data store make of the same run.
func TestWandbFileEqualsThePackages(t *testing.T) {
	want, err := os.ReadFile("testdata/run.wandb")
	if err != nil {
		t.Fatal(err)
	}
	if _, got := wandbRun(t, wandbEnv); !bytes.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

// TestWandbFramesEqualThePackages: records across borders of blocks; the sum is what testdata/make_wandb.py prints.
func TestWandbFramesEqualThePackages(t *testing.T) {
	sizes := []int{100000, 0, 65522, 1, 32761, 3 * 32761}
	for left := 8; left >= 0; left-- {
		sizes = append([]int{32768 - 3*7 - left}, sizes...)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // a test
	log := &wandbLog{file: file}
	for i, n := range sizes {
		long := make(message, n)
		for j := range long {
			long[j] = byte((i + j) % 251)
		}
		if err := log.append([]message{long, {}}); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	if got := hex.EncodeToString(sum[:]); got != "f5660be2d2d21c7ddba9251cb8e71fa27a16c04ce191105e885582d5a1fd0d0c" || log.size != int64(len(data)) {
		t.Errorf("%d bytes of SHA-256 %s", len(data), got)
	}
}

// TestWandbIDs: a run that begins anew has another id, one that goes on keeps it, and WANDB_RUN_ID names one.
func TestWandbIDs(t *testing.T) {
	dir := t.TempDir()
	id := func(done int, env map[string]string) string {
		w, err := NewWandb(Run{Dir: dir, Done: done, Getenv: func(name string) string { return env[name] }})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Send(t.Context(), []Event{{Kind: KindStart, Time: time.Unix(1700000000, 0), Step: done}}); err != nil {
			t.Fatal(err)
		}
		w.Close() //nolint:errcheck // a test
		return w.(*wandb).id
	}
	elsewhere := map[string]string{"WANDB_DIR": t.TempDir()}
	first := id(0, nil)
	if got := id(3, nil); got != first || !wandbID.MatchString(got) {
		t.Errorf("resumed as %q, was %q", got, first)
	}
	if got := id(3, elsewhere); got != first {
		t.Errorf("resumed elsewhere as %q, was %q", got, first)
	}
	if got := id(0, nil); got == first {
		t.Errorf("a new run is %q too", got)
	}
	if got := id(3, map[string]string{"WANDB_RUN_ID": "mine"}); got != "mine" {
		t.Errorf("named run is %q", got)
	}
	for where, want := range map[string]int{dir: 4, elsewhere["WANDB_DIR"]: 1} {
		if found, _ := filepath.Glob(filepath.Join(where, WandbDir, "offline-run-*")); len(found) != want {
			t.Errorf("%d folders in %s, want %d", len(found), where, want)
		}
	}
	os.WriteFile(filepath.Join(dir, WandbDir, wandbIDFile), []byte(`{"run_id": "../../x"}`), 0o644) //nolint:errcheck // a test
	if got := id(3, nil); len(got) != 8 || strings.Contains(got, "/") {
		t.Errorf("a broken file gives %q", got)
	}
}

// TestWandbDisabled: nothing is written.
func TestWandbDisabled(t *testing.T) {
	dir := t.TempDir()
	w, err := NewWandb(Run{Dir: dir, Getenv: func(name string) string { return map[string]string{"WANDB_MODE": "disabled"}[name] }})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.Send(t.Context(), []Event{{Kind: KindStart}}); n != 1 || err != nil || w.Close() != nil {
		t.Error(n, err)
	}
	if found, _ := os.ReadDir(dir); len(found) > 0 {
		t.Errorf("wrote %v", found)
	}
}

// TestWandbWithoutRoom: what cannot be written is a failure of the tracker's, and is not tried again.
func TestWandbWithoutRoom(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, WandbDir), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w, err := NewWandb(Run{Dir: dir, Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	unsent := filepath.Join(dir, "unsent.jsonl")
	q := NewQueue("wandb", w, unsent, func() Limits { l := quick(); l.Flush = time.Minute; return l }())
	q.Put(Event{Kind: KindStart})
	q.Put(Event{Kind: KindEnd})
	q.Finish()
	if said := q.Wait(); !strings.HasPrefix(said, "tracking: wandb: 2 of 2 events were not delivered: keep the run's id: ") || len(lines(t, unsent)) != 2 {
		t.Errorf("said %q", said)
	}
}

// readByWandb prints, as JSON lines, the kind of each record and its values.
const readByWandb = `
import json, sys
from wandb.proto import wandb_internal_pb2 as pb
from wandb.sdk.internal.datastore import DataStore
store = DataStore()
store.open_for_scan(sys.argv[1])
while (data := store.scan_data()) is not None:
    r = pb.Record.FromString(data)
    kind = r.WhichOneof("record_type")
    body = getattr(r, kind)
    items = {"history": lambda: body.item, "summary": lambda: body.update, "run": lambda: body.config.update}.get(kind, list)()
    print(json.dumps([r.num, kind, {".".join(i.nested_key) or i.key: repr(json.loads(i.value_json)) for i in items}]))
`

// TestWandbReads: the wandb package's own reader, where TRAINER_PYTHON is a Python that has one with a data store.
func TestWandbReads(t *testing.T) {
	python := os.Getenv("TRAINER_PYTHON")
	if python == "" {
		t.Skip("TRAINER_PYTHON is not set")
	}
	if exec.Command(python, "-c", "import wandb.sdk.internal.datastore").Run() != nil {
		t.Skipf("%s has no wandb with a data store (wandb<=0.22)", python)
	}
	_, data := wandbRun(t, wandbEnv)
	path := filepath.Join(t.TempDir(), "run.wandb")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(python, "-c", readByWandb, path).Output()
	if err != nil {
		t.Fatal(err)
	}
	var history string
	kinds := []string{}
	for line := range strings.Lines(string(out)) {
		var r [3]json.RawMessage
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, string(r[1]))
		if string(r[1]) == `"history"` {
			history = string(r[2])
		}
	}
	if got, want := strings.Join(kinds, " "), `"header" "run" "history" "summary" "summary" "exit"`; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	want := `{"train/loss": "2.5", "train/learning_rate": "0.0001", "eval/loss": "nan", "_timestamp": "1700000002", "_runtime": "1.75", "train/global_step": "301", "_step": "301"}`
	if history != want {
		t.Errorf("got  %s\nwant %s", history, want)
	}
}

// TestWandbDiskFull: a write that fails is an error of the tracker's, permanent.
func TestWandbDiskFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	w := &wandb{run: Run{Getenv: func(string) string { return "" }}, id: "x", log: &wandbLog{file: full}}
	defer w.Close() //nolint:errcheck // a test
	_, err = w.Send(t.Context(), []Event{{Kind: KindEnd, Metrics: Metrics{{"train_loss", 1}}}})
	if permanent := (*Permanent)(nil); !errors.As(err, &permanent) || !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
}
