package checkpoint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
)

func checkpointFiles(t testing.TB, step int) map[string][]byte {
	t.Helper()
	state, err := State{GlobalStep: step, Epoch: 0.5, MaxSteps: 10, Cursor: json.RawMessage(`{"epoch":0}`)}.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		StateFile:                   state,
		"adapter_model.safetensors": bytes.Repeat([]byte{byte(step)}, 100_000),
		"optimizer.safetensors":     bytes.Repeat([]byte{byte(step), 1}, 100_000),
		"config.yaml":               []byte("seed: 1\n"),
	}
}

func saveSteps(t testing.TB, dir string, steps ...int) {
	t.Helper()
	for _, step := range steps {
		if err := Save(dir, step, checkpointFiles(t, step)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCheckpointRoundTrip(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if path, damaged, err := Latest(dir); path != "" || damaged != nil || err != nil {
		t.Fatalf("Latest of a folder that is not there: %q, %v, %v", path, damaged, err)
	}
	saveSteps(t, dir, 9, 10, 10)
	path, damaged, err := Latest(dir)
	if err != nil || damaged != nil || path != filepath.Join(dir, "checkpoint-10") {
		t.Fatalf("Latest: %q, %v, %v", path, damaged, err)
	}
	files, state, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := checkpointFiles(t, 10); len(files) != len(want) {
		t.Errorf("%d files, want %d", len(files), len(want))
	} else {
		for name := range want {
			if !bytes.Equal(files[name], want[name]) {
				t.Errorf("%s differs", name)
			}
		}
	}
	if state.GlobalStep != 10 || state.Epoch != 0.5 || state.MaxSteps != 10 || string(state.Cursor) == "" {
		t.Errorf("state %+v", state)
	}
	if names := folderNames(t, dir); !slices.Equal(names, []string{"checkpoint-10", "checkpoint-9"}) {
		t.Errorf("the folder holds %v", names)
	}
}

func folderNames(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestDamagedCheckpoints(t *testing.T) {
	const adapter = "adapter_model.safetensors"
	flip := func(name string) func(string) error {
		return func(path string) error {
			data, err := os.ReadFile(filepath.Join(path, name))
			if err != nil {
				return err
			}
			data[len(data)/2] ^= 1
			return os.WriteFile(filepath.Join(path, name), data, 0o644)
		}
	}
	sums := func(text string) func(string) error {
		return func(path string) error {
			return os.WriteFile(filepath.Join(path, SumFile), []byte(text), 0o644)
		}
	}
	for name, c := range map[string]struct {
		damage func(path string) error
		want   string
	}{
		"missing file":  {func(p string) error { return os.Remove(filepath.Join(p, adapter)) }, adapter + " is missing"},
		"short file":    {func(p string) error { return os.Truncate(filepath.Join(p, adapter), 99_999) }, adapter + " is damaged: it has 99999 bytes, saved were 100000"},
		"one bit":       {flip(adapter), adapter + " is damaged: its SHA-256 is "},
		"one bit state": {flip(StateFile), StateFile + " is damaged: its SHA-256 is "},
		"no sums":       {func(p string) error { return os.Remove(filepath.Join(p, SumFile)) }, "checkpoint.json is missing: this is no complete checkpoint"},
		"sums no JSON":  {sums("{"), "checkpoint.json is damaged: line 1, column 2: "},
		"sums unknown":  {sums(`{"format":1,"sums":2}`), `checkpoint.json is damaged: unknown field "sums"`},
		"sums a pipe": {func(p string) error {
			return errors.Join(os.Remove(filepath.Join(p, SumFile)), mkfifo(filepath.Join(p, SumFile)))
		}, "PATH/checkpoint.json is a named pipe (FIFO), want a regular file"},
		"sums empty":   {sums(`{"format":1,"step":2}`), "trainer_state.json is missing"},
		"later format": {sums(`{"format":2}`), "checkpoint.json has format 2, this program reads 1"},
		"escape":       {sums(`{"format":1,"step":2,"files":[{"name":"../x"}]}`), `checkpoint.json is damaged: "../x" is no file name`},
		"a folder": {func(p string) error {
			os.Remove(filepath.Join(p, adapter))
			return os.Mkdir(filepath.Join(p, adapter), 0o755)
		}, adapter + " is damaged: not a file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			saveSteps(t, dir, 1, 2)
			path := filepath.Join(dir, "checkpoint-2")
			if err := c.damage(path); errors.Is(err, exec.ErrNotFound) {
				t.Skip(err) // Windows has no named pipes in folders
			} else if err != nil {
				t.Fatal(err)
			}
			_, _, err := Load(path)
			if want := "load checkpoint " + path + ": " + strings.ReplaceAll(c.want, "PATH", path); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q in it", err, want)
			}
			latest, damaged, err := Latest(dir)
			if latest != filepath.Join(dir, "checkpoint-1") || len(damaged) != 1 || err != nil {
				t.Errorf("Latest: %q, %v, %v; want checkpoint-1 and one damaged", latest, damaged, err)
			}
		})
	}
}

// mkfifo makes a named pipe, by the program: syscall has none on every system.
func mkfifo(path string) error { return exec.Command("mkfifo", path).Run() }

func TestCheckpointFileNames(t *testing.T) {
	for _, name := range []string{"../x", "a/b", ".", "", SumFile, `a\b`} {
		files := checkpointFiles(t, 1)
		files[name] = nil
		if err := Save(t.TempDir(), 1, files); err == nil {
			t.Errorf("file name %q was accepted", name)
		}
	}
	if err := Save(t.TempDir(), 1, map[string][]byte{"x": nil}); err == nil {
		t.Error("a checkpoint without a state was accepted")
	}
}

func TestPrune(t *testing.T) {
	for _, c := range []struct {
		keep int
		best string
		want []int
	}{
		{0, "", []int{1, 2, 3, 10, 20}},
		{2, "", []int{10, 20}},
		{2, "checkpoint-2", []int{2, 10, 20}},
		{1, "checkpoint-20", []int{10, 20}},
		{9, "checkpoint-7", []int{1, 2, 3, 10, 20}},
	} {
		dir := t.TempDir()
		saveSteps(t, dir, 1, 2, 3, 10, 20)
		if err := os.Mkdir(filepath.Join(dir, "checkpoint-x"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := Prune(dir, c.keep, c.best); err != nil {
			t.Fatal(err)
		}
		if got, err := Steps(dir); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("keep %d, best %q: %v left (%v), want %v", c.keep, c.best, got, err, c.want)
		}
	}
}

func TestBetter(t *testing.T) {
	var s State
	for i, c := range []struct {
		loss float64
		want bool
	}{{math.NaN(), false}, {math.Inf(1), false}, {2, true}, {2, false}, {3, false}, {math.NaN(), false}, {1, true}} {
		s.GlobalStep = i
		if got := s.Better(c.loss, false); got != c.want {
			t.Errorf("evaluation %d, loss %v: better %v", i, c.loss, got)
		}
	}
	if *s.BestMetric != 1 || s.BestModelCheckpoint != "checkpoint-6" {
		t.Errorf("best %v in %s", *s.BestMetric, s.BestModelCheckpoint)
	}
}

// TestBetterWhereHigher: of a metric whose higher value is better, such as an accuracy, the highest is the best.
func TestBetterWhereHigher(t *testing.T) {
	var s State
	for i, c := range []struct {
		accuracy float64
		want     bool
	}{{math.NaN(), false}, {math.Inf(1), false}, {0, true}, {0, false}, {0.7, true}, {0.6, false}, {0.7, false}, {0.8, true}} {
		s.GlobalStep = i
		if got := s.Better(c.accuracy, true); got != c.want {
			t.Errorf("evaluation %d, accuracy %v: better %v", i, c.accuracy, got)
		}
	}
	if *s.BestMetric != 0.8 || s.BestModelCheckpoint != "checkpoint-7" {
		t.Errorf("best %v in %s", *s.BestMetric, s.BestModelCheckpoint)
	}
}

// TestKilledWhileSaving kills a process in the middle of its saves, over and over: the newest checkpoint that
// it had reported as saved, or a later one, is always found whole.
func TestKilledWhileSaving(t *testing.T) {
	if dir := os.Getenv("TRAINER_TEST_SAVE_INTO"); dir != "" {
		saveForever(t, dir, os.Getenv("TRAINER_TEST_SAME_STEP") != "")
	}
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 2))
	confirmed, halves := 0, 0
	for round := range 40 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWhileSaving$")
		cmd.Env = append(os.Environ(), "TRAINER_TEST_SAVE_INTO="+dir)
		if round%2 == 1 {
			cmd.Env = append(cmd.Env, "TRAINER_TEST_SAME_STEP=1")
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 1 + rng.IntN(3) {
			if !lines.Scan() {
				t.Fatal("the child ended by itself: ", lines.Err())
			}
			if confirmed, err = strconv.Atoi(lines.Text()); err != nil {
				t.Fatalf("the child said %q", lines.Text())
			}
		}
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
		cmd.Process.Kill()
		for lines.Scan() {
			if n, err := strconv.Atoi(lines.Text()); err == nil {
				confirmed = n
			}
		}
		cmd.Wait()

		names := folderNames(t, dir)
		if slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, ".") }) {
			halves++
		}
		path, damaged, err := Latest(dir)
		if err != nil || len(damaged) > 0 {
			t.Fatalf("round %d: %v, damaged %v", round, err, damaged)
		}
		_, state, err := Load(path)
		if err != nil || state.GlobalStep < confirmed {
			t.Fatalf("round %d: the newest of %v is step %d (%v), but step %d was saved", round, names, state.GlobalStep, err, confirmed)
		}
	}
	t.Logf("40 kills, %d of them in the middle of a save", halves)
	if halves < 5 {
		t.Errorf("only %d of 40 kills hit the middle of a save: the test shows nothing", halves)
	}
	saveSteps(t, dir, confirmed+100)
	for _, name := range folderNames(t, dir) {
		if strings.HasPrefix(name, ".") {
			t.Errorf("%s was left behind", name)
		}
	}
}

// saveForever is the child: it saves, says which step, and never returns.
func saveForever(t *testing.T, dir string, sameStep bool) {
	steps, err := Steps(dir)
	if err != nil {
		t.Fatal(err)
	}
	step := 1
	if len(steps) > 0 {
		step = steps[len(steps)-1]
	}
	for {
		if !sameStep {
			step++
		}
		saveSteps(t, dir, step)
		if err := Prune(dir, 2, ""); err != nil {
			t.Fatal(err)
		}
		fmt.Println(step)
	}
}

// TestStreamEqualsFile: a file that is written as it is made is the same in a checkpoint, its sums too.
func TestStreamEqualsFile(t *testing.T) {
	files := checkpointFiles(t, 1)
	a, b := t.TempDir(), t.TempDir()
	if err := Save(a, 1, files); err != nil {
		t.Fatal(err)
	}
	const name = "optimizer.safetensors"
	data := files[name]
	delete(files, name)
	stream := Stream{name, 0, func(w io.Writer) error {
		_, err := w.Write(data[:7])
		_, more := w.Write(data[7:])
		return errors.Join(err, more)
	}}
	if err := Save(b, 1, files, stream); err != nil {
		t.Fatal(err)
	}
	for _, name := range folderNames(t, filepath.Join(a, Name(1))) {
		x, err1 := os.ReadFile(filepath.Join(a, Name(1), name))
		y, err2 := os.ReadFile(filepath.Join(b, Name(1), name))
		if err1 != nil || err2 != nil || !bytes.Equal(x, y) {
			t.Errorf("%s differs: %v, %v", name, err1, err2)
		}
	}
	if _, _, err := Load(filepath.Join(b, Name(1))); err != nil {
		t.Error(err)
	}
	broken := errors.New("the device is gone")
	if err := Save(b, 2, files, Stream{name, 0, func(io.Writer) error { return broken }}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if names := folderNames(t, b); !slices.Equal(names, []string{Name(1)}) {
		t.Errorf("a save that failed leaves %v", names)
	}
}

// TestNoRoom: a checkpoint that does not fit is refused before any of it is written, and the one before stays.
func TestNoRoom(t *testing.T) {
	dir := t.TempDir()
	files := map[string][]byte{StateFile: []byte(`{"global_step":2}`)}
	if err := Save(dir, 2, files); err != nil {
		t.Fatal(err)
	}
	real := diskFree
	t.Cleanup(func() { diskFree = real })
	diskFree = func(string) (int64, bool) { return 1016, true }
	files[StateFile] = []byte(`{"global_step":3}`)
	big := Stream{"big", 1000, func(io.Writer) error { t.Error("it is written"); return nil }}
	err := Save(dir, 3, files, big)
	var full *atomicfile.FullError
	if !errors.As(err, &full) || full.Needed != 1017 || full.Free != 1016 || full.Path != filepath.Join(dir, Name(3)) {
		t.Errorf("saved with %v", err)
	}
	if path, damaged, err := Latest(dir); err != nil || damaged != nil || filepath.Base(path) != Name(2) {
		t.Errorf("the newest is %s, %v, %v", path, damaged, err)
	}
}
