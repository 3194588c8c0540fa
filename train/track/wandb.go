package track

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/internal/safetext"
)

// WandbDir is the folder of Weights & Biases' runs, in a run's output folder or in WANDB_DIR.
const WandbDir = "wandb"

// wandbIDFile keeps the run's id in OUTPUT/wandb, in the format of the wandb package's file of that name.
const wandbIDFile = "wandb-resume.json"

// maxWandbTag is the most characters of a tag that the server of Weights & Biases accepts.
const maxWandbTag = 64

var wandbID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// wandb writes a run as the wandb package does offline: as Record messages (wandb_internal.proto) in its log.
type wandb struct {
	run      Run
	dir      string // folder of the runs' folders
	disabled bool
	tags     []string
	id       string
	log      *wandbLog
	records  uint64 // number of records written so far
	began    time.Time
	row      Metrics // numbers of the current step
	step     int
	at       time.Time
}

// NewWandb returns the tracker of report_to: wandb. It only writes files; `wandb sync` uploads them.
func NewWandb(r Run) (Tracker, error) {
	w := &wandb{run: r, dir: filepath.Join(r.Dir, WandbDir), id: r.Getenv("WANDB_RUN_ID")}
	switch mode := r.Getenv("WANDB_MODE"); mode {
	case "", "online", "run", "offline", "dryrun":
	case "disabled":
		w.disabled = true
	default:
		return nil, fmt.Errorf("WANDB_MODE: %q is not a mode: write offline, or disabled; online is taken too, and "+
			"writes offline for `wandb sync`", safetext.Line(mode, maxQuoted))
	}
	if w.id != "" && !wandbID.MatchString(w.id) {
		return nil, fmt.Errorf("WANDB_RUN_ID: %q is not an id of up to 64 letters, digits, - and _",
			safetext.Line(w.id, maxQuoted))
	}
	if dir := r.Getenv("WANDB_DIR"); dir != "" {
		w.dir = filepath.Join(dir, WandbDir)
	}
	for _, tag := range strings.Split(r.Getenv("WANDB_TAGS"), ",") {
		if tag = strings.TrimSpace(tag); tag == "" {
			continue
		}
		if utf8.RuneCountInString(tag) > maxWandbTag {
			return nil, fmt.Errorf("WANDB_TAGS: the tag %q has more than %d characters", safetext.Line(tag, maxQuoted),
				maxWandbTag)
		}
		w.tags = append(w.tags, tag)
	}
	for name, value := range r.Tags {
		tag := name + ":" + value
		if utf8.RuneCountInString(tag) > maxWandbTag {
			return nil, fmt.Errorf("tracking.tags: %q has more than the %d characters of a tag of Weights & Biases",
				safetext.Line(tag, maxQuoted), maxWandbTag)
		}
		w.tags = append(w.tags, tag)
	}
	slices.Sort(w.tags)
	w.tags = slices.Compact(w.tags)
	return w, nil
}

// Notice says where the run is written, since users of the wandb package expect it online.
func (w *wandb) Notice() string {
	if w.disabled {
		return "tracking: wandb: WANDB_MODE is disabled, nothing is written"
	}
	return fmt.Sprintf("tracking: wandb: the run is written offline; upload it with: wandb sync %s",
		filepath.Join(w.dir, "offline-run-*"))
}

func (w *wandb) Send(_ context.Context, events []Event) (int, error) {
	if w.disabled {
		return len(events), nil
	}
	var all []message
	if w.log == nil {
		if err := w.open(events[0].Time); err != nil {
			return 0, &Permanent{err}
		}
		all = append(all, w.head(), w.start())
	}
	for _, e := range events {
		all = append(all, w.note(e)...)
	}
	if len(all) == 0 {
		return len(events), nil
	}
	if err := w.log.append(all); err != nil {
		return 0, &Permanent{err}
	}
	return len(events), nil
}

// open creates the run's folder and file. A resumed run keeps the id in its output folder.
func (w *wandb) open(at time.Time) error {
	w.began = at
	keep := filepath.Join(w.run.Dir, WandbDir, wandbIDFile)
	if w.id == "" && w.run.Done > 0 {
		w.id = readWandbID(keep)
	}
	if w.id == "" {
		w.id = newWandbID()
	}
	data, err := json.Marshal(map[string]string{"run_id": w.id})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(keep), 0o755)
	}
	if err == nil {
		err = atomicfile.Write(keep, data)
	}
	if err == nil {
		err = os.MkdirAll(w.dir, 0o755)
	}
	if err != nil {
		return fmt.Errorf("keep the run's id: %w", err)
	}
	for n := range 1000 { // two runs that start in the same second get two folders
		dir := filepath.Join(w.dir,
			fmt.Sprintf("offline-run-%s-%s", at.Add(time.Duration(n)*time.Second).Format("20060102_150405"), w.id))
		if err = os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			err = os.Mkdir(filepath.Join(dir, "files"), 0o755) // wandb sync writes the configuration there as a file
		}
		if err != nil {
			break
		}
		f, err := atomicfile.Create(filepath.Join(dir, "run-"+w.id+".wandb"), 0o644)
		if err != nil {
			return fmt.Errorf("make the run's log: %w", err)
		}
		w.log = &wandbLog{file: f}
		return nil
	}
	return fmt.Errorf("make a folder of the run in %s: %w", w.dir, err)
}

// readWandbID returns the id in a file, "" if there is none.
func readWandbID(path string) string {
	data, err := regular.ReadFile(path)
	var kept struct {
		ID string `json:"run_id"`
	}
	if err != nil || json.Unmarshal(data, &kept) != nil || !wandbID.MatchString(kept.ID) {
		return ""
	}
	return kept.ID
}

// newWandbID returns eight random letters and digits. No number of the run depends on it.
func newWandbID() string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	var b [8]byte
	rand.Read(b[:]) //nolint:errcheck // never fails, says its documentation
	for i, x := range b {
		b[i] = letters[int(x)%len(letters)]
	}
	return string(b[:])
}

// record returns a numbered Record with a message in one of its fields.
func (w *wandb) record(field int, inner message) message {
	w.records++
	var m message
	m.number(1, w.records)
	m.bytes(field, inner)
	return m
}

// head returns the HeaderRecord: the program that wrote the file, and the oldest wandb-core that can read it.
func (w *wandb) head() message {
	var version, head message
	version.text(1, "tierlora")
	version.text(2, "0.40.0")
	head.bytes(1, version)
	return w.record(21, head)
}

// start returns the RunRecord: names and configuration.
func (w *wandb) start() message {
	var config, run, began message
	for _, p := range w.run.Params {
		var item message
		item.text(1, p.Key)
		item.text(16, paramJSON(p.Value))
		config.bytes(1, item)
	}
	run.text(1, w.id)
	or := func(name, other string) string {
		if text := w.run.Getenv(name); text != "" {
			return text
		}
		return other
	}
	optional := func(field int, text string) {
		if text != "" {
			run.text(field, text)
		}
	}
	optional(2, or("WANDB_ENTITY", ""))
	optional(3, or("WANDB_PROJECT", w.run.Experiment))
	run.bytes(4, config)
	optional(6, or("WANDB_RUN_GROUP", ""))
	optional(7, or("WANDB_JOB_TYPE", ""))
	optional(8, or("WANDB_NAME", w.run.RunName))
	optional(9, or("WANDB_NOTES", ""))
	for _, tag := range w.tags {
		run.text(10, tag)
	}
	if w.run.Done > 0 {
		run.number(14, uint64(w.run.Done))
	}
	began.number(1, uint64(w.began.Unix()))
	if n := w.began.Nanosecond(); n > 0 {
		began.number(2, uint64(n))
	}
	run.bytes(17, began)
	if w.run.Done > 0 {
		run.number(18, 1)
	}
	return w.record(17, run)
}

// paramJSON returns a value of the configuration as JSON: a number or boolean unquoted, anything else as a string.
func paramJSON(text string) string {
	if _, err := strconv.ParseFloat(text, 64); (err == nil || text == "true" || text == "false") &&
		json.Valid([]byte(text)) {
		return text
	}
	return jsonText(text)
}

func jsonText(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		return `""` // unreachable: every string can be encoded
	}
	return string(data)
}

// note returns the records of an event. All numbers of a step are one row, since the server accepts each step once.
func (w *wandb) note(e Event) (all []message) {
	if e.Step != w.step || e.Kind == KindSave || e.Kind == KindEnd {
		all = w.flush()
	}
	if e.Kind == KindStep || e.Kind == KindEval {
		w.step, w.at = e.Step, e.Time
		w.row = mergeMetrics(w.row, e.Metrics)
	}
	if e.Kind != KindEnd {
		return all
	}
	if len(e.Metrics) > 0 {
		all = append(all, w.record(3, w.summary(e.Metrics, e.Time)))
	}
	var exit message
	switch e.Status {
	case StatusFailed:
		exit.number(1, 1)
	case StatusStopped:
		exit.number(1, 255) // the exit code of the wandb package for a run that Ctrl-C ended
	}
	if s := e.Time.Sub(w.began) / time.Second; s > 0 {
		exit.number(2, uint64(s))
	}
	return append(all, w.record(18, exit))
}

// flush returns the row of a step and the newest numbers.
func (w *wandb) flush() []message {
	if len(w.row) == 0 {
		return nil
	}
	var history, step message
	items(&history, w.row, w.at, w.began)
	item(&history, "train/global_step", strconv.Itoa(w.step))
	item(&history, "_step", strconv.Itoa(w.step))
	if w.step > 0 {
		step.number(1, uint64(w.step))
	}
	history.bytes(2, step)
	row := w.row
	w.row = nil
	return []message{w.record(2, history), w.record(3, w.summary(row, w.at))}
}

func (w *wandb) summary(m Metrics, at time.Time) message {
	var s message
	items(&s, m, at, w.began)
	item(&s, "_step", strconv.Itoa(w.step))
	return s
}

// items adds numbers, with the time of day and the time since the start of the run, both in seconds.
func items(to *message, all Metrics, at, began time.Time) {
	for _, m := range all {
		item(to, tag(m.Name), numberJSON(m.Value))
	}
	item(to, "_timestamp", numberJSON(float64(at.UnixMicro())/1e6))
	item(to, "_runtime", numberJSON(at.Sub(began).Seconds()))
}

// item is a HistoryItem or SummaryItem, which have the same fields.
func item(to *message, key, value string) {
	var m message
	m.text(2, key)
	m.text(16, value)
	to.bytes(1, m)
}

// numberJSON formats a number as Python's json does: the wandb package accepts NaN, Infinity and -Infinity.
func numberJSON(x float64) string {
	switch {
	case math.IsNaN(x):
		return "NaN"
	case math.IsInf(x, 1):
		return "Infinity"
	case math.IsInf(x, -1):
		return "-Infinity"
	}
	data, err := json.Marshal(x) // as in metrics.jsonl
	if err != nil {
		return "null" // unreachable: every finite number can be encoded
	}
	return string(data)
}

func (w *wandb) Close() error {
	if w.log == nil {
		return nil
	}
	return w.log.file.Close()
}
