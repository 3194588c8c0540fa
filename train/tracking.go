package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/train/track"
)

// tracked adapts a tracker to an Observer. It only queues events, so that no tracker can stop or slow the run.
type tracked struct {
	Silent
	name  string
	make  track.New
	spec  Spec
	text  string
	logf  func(format string, args ...any)
	queue *track.Queue
	total int
	step  int
	sums  map[string]bool // names of the objective's numbers that tables list
}

// tracker returns an entry of Observers.
func tracker(name string, make track.New) func(opened) Observer {
	return func(p opened) Observer {
		return &tracked{name: name, make: make, spec: p.spec, text: string(p.env.Config), logf: p.env.Logf}
	}
}

// CheckTrackers returns what the configuration or the environment lacks for the trackers of training.report_to, and
// which file a tracker must not replace. It uses no network and reads only the headers of such files.
func CheckTrackers(s Spec) error {
	var lack []error
	for _, name := range s.Training.ReportTo {
		if make := Observers[name]; make != nil {
			if t, ok := make(opened{spec: s}).(*tracked); ok {
				to, err := t.make(t.run(RunInfo{Dir: s.OutputDir}))
				lack = append(lack, err, checkFiles(to))
			}
		}
	}
	return errors.Join(lack...)
}

// checkFiles returns an error if a tracker would write to a file that must not be replaced.
func checkFiles(t track.Tracker) error {
	if f, ok := t.(interface{ CheckFiles() error }); ok {
		return f.CheckFiles()
	}
	return nil
}

// unsentFile returns the name of the file in a run's output folder with the events that could not be delivered.
func (t *tracked) unsentFile() string { return t.name + "_unsent.jsonl" }

// Files returns the names of the files that it may write.
func (t *tracked) Files() []string {
	names := []string{t.unsentFile()}
	if t.name == "prometheus" && t.spec.Tracking.MetricsFile == "" {
		names = append(names, track.MetricsPromFile)
	}
	if t.name == "trackio" {
		names = append(names, track.TrackioFile)
	}
	return names
}

func (t *tracked) run(r RunInfo) track.Run {
	c := t.spec.Tracking
	if c.RunName == "" {
		c.RunName = filepath.Base(t.spec.OutputDir)
	}
	return track.Run{Config: c, Dir: r.Dir, Total: r.Total, Done: r.Done, Text: t.text,
		Params: parameters(t.spec), Getenv: os.Getenv}
}

func (t *tracked) Start(r RunInfo) error {
	to, err := t.make(t.run(r))
	if err != nil {
		return err
	}
	if err := checkFiles(to); err != nil {
		return err
	}
	if n, ok := to.(interface{ Notice() string }); ok {
		t.logf("%s", n.Notice())
	}
	t.total, t.step, t.sums = r.Total, r.Done, map[string]bool{}
	for _, n := range r.Numbers {
		t.sums[n.Name] = n.Listed()
	}
	t.queue = track.NewQueue(t.name, to, filepath.Join(r.Dir, t.unsentFile()), track.DefaultLimits)
	t.put(track.Event{Kind: track.KindStart, Step: r.Done})
	return nil
}

// put queues an event, and logs the messages of the tracker's goroutine.
func (t *tracked) put(e track.Event) {
	e.Time, e.Total = time.Now(), t.total
	t.queue.Put(e)
	if m := t.queue.Message(); m != "" {
		t.logf("%s", m)
	}
}

func (t *tracked) Step(s StepInfo) error {
	t.step = s.Step
	if l := s.Logged; l != nil {
		all := track.Metrics{{Name: "epoch", Value: l.Epoch}, {Name: "loss", Value: l.Loss}}
		for _, v := range l.Numbers {
			// Numbers derived from others are only sent for evaluations. Windows have numbers that no objective lists.
			if listed, known := t.sums[v.Name]; listed || !known {
				all = append(all, track.Metric{Name: v.Name, Value: v.Value})
			}
		}
		all = append(all, track.Metrics{{Name: "grad_norm", Value: l.GradNorm},
			{Name: "learning_rate", Value: l.LearningRate},
			{Name: "num_input_tokens_seen", Value: float64(l.TokensSeen)},
			{Name: "tokens_per_second", Value: l.TokensPerSecond}}...)
		t.put(track.Event{Kind: track.KindStep, Step: l.Step, Metrics: all})
	}
	return nil
}

func (t *tracked) Eval(e EvalMetrics) error {
	all := track.Metrics{{Name: "eval_loss", Value: e.Loss}}
	for _, v := range e.Numbers {
		all = append(all, track.Metric{Name: v.Name, Value: v.Value})
	}
	t.put(track.Event{Kind: track.KindEval, Step: e.Step, Metrics: all})
	return nil
}

func (t *tracked) Save(s SaveInfo) error {
	t.put(track.Event{Kind: track.KindSave, Step: s.Step, Path: s.Path})
	return nil
}

// Ending starts the last flush, so that the flushes of all trackers run concurrently.
func (t *tracked) Ending(e EndInfo) {
	if t.queue == nil {
		return
	}
	last := track.Event{Kind: track.KindEnd, Step: t.step, Status: track.StatusDone}
	switch {
	case e.Err != nil:
		last.Status, last.Error = track.StatusFailed, safetext.Plain(safetext.Mask(e.Err.Error()))
	case e.Logged == nil:
		last.Status = track.StatusStopped
	default:
		last.Metrics = track.Metrics{{Name: "train_loss", Value: e.Logged.Loss},
			{Name: "train_runtime", Value: e.Logged.Runtime}}
	}
	t.put(last)
	t.queue.Finish()
}

func (t *tracked) End(EndInfo) error {
	if t.queue == nil {
		return nil
	}
	if lost := t.queue.Wait(); lost != "" {
		t.logf("%s", lost)
	} else if m := t.queue.Message(); m != "" {
		t.logf("%s", m)
	}
	return nil
}

// parameters returns the keys of the configuration that have a value, in the order of the reference, without tracking.
func parameters(s Spec) []track.Param {
	s.Tracking = track.Config{}
	var all []track.Param
	var walk func(prefix string, v reflect.Value)
	walk = func(prefix string, v reflect.Value) {
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
			f := v.Field(i)
			if f.Kind() == reflect.Pointer && !f.IsNil() {
				f = f.Elem()
			}
			switch {
			case name == "" || name == "-" || f.IsZero():
			case f.Kind() == reflect.Struct:
				walk(prefix+name+".", f)
			default:
				all = append(all, track.Param{Key: prefix + name, Value: fmt.Sprint(f.Interface())})
			}
		}
	}
	walk("", reflect.ValueOf(s))
	return all
}
