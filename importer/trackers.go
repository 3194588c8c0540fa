package importer

import (
	"slices"
	"strings"
)

// trackers holds the rules of keys about experiment trackers.
var trackers = map[string]rule{
	"report_to":              reportTo,
	"use_wandb":              func(t *translation, e entry) { t.reports(e, "wandb", e.Value == true) },
	"use_tensorboard":        func(t *translation, e entry) { t.reports(e, "tensorboard", e.Value == true) },
	"use_mlflow":             func(t *translation, e entry) { t.reports(e, "mlflow", e.Value == true) },
	"use_trackio":            func(t *translation, e entry) { t.reports(e, "trackio", e.Value == true) },
	"trackio_project_name":   func(t *translation, e entry) { t.trackerText(e, "trackio", "tracking.experiment") },
	"trackio_run_name":       func(t *translation, e entry) { t.trackerText(e, "trackio", "tracking.run_name") },
	"wandb_mode":             wandbMode,
	"wandb_project":          func(t *translation, e entry) { t.trackerText(e, "wandb", "tracking.experiment") },
	"wandb_name":             func(t *translation, e entry) { t.trackerText(e, "wandb", "tracking.run_name") },
	"mlflow_tracking_uri":    func(t *translation, e entry) { t.trackerText(e, "mlflow", "tracking.mlflow_url") },
	"mlflow_experiment_name": func(t *translation, e entry) { t.trackerText(e, "mlflow", "tracking.experiment") },
	"mlflow_run_name":        func(t *translation, e entry) { t.trackerText(e, "mlflow", "tracking.run_name") },
	"run_name":               func(t *translation, e entry) { t.trackerText(e, "", "tracking.run_name") },
}

const reports = "training.report_to"

// reports adds a tracker to those of the run.
func (t *translation) reports(e entry, name string, on bool) {
	if !on {
		t.off(e)
		return
	}
	if t.report(e, name) {
		t.add(Taken, e, reports, name, "")
	}
}

// report adds a tracker without an entry; false means that the run had it already.
func (t *translation) report(e entry, name string) bool {
	i, ok := t.at[reports]
	if !ok {
		t.at[reports] = len(t.set)
		t.set = append(t.set, Setting{reports, []any{name}, e.shown})
		return true
	}
	list, _ := t.set[i].Value.([]any)
	if slices.Contains(list, any(name)) {
		t.add(Taken, e, reports, nil, "as given before")
		return false
	}
	t.set[i].Value = append(list, name)
	return true
}

// trackerText translates a name or an address, which also enables its tracker.
func (t *translation) trackerText(e entry, tracker, path string) {
	if s, ok := e.Value.(string); !ok || s == "" {
		if _, code := e.Value.(Code); code {
			t.take(e, path)
			return
		}
		t.off(e)
		return
	}
	if tracker != "" {
		said := len(t.entries)
		t.report(e, tracker)
		t.entries = t.entries[:said] // the text itself is reported
	}
	t.take(e, path)
}

// reportTo translates the tracker names of transformers.
func reportTo(t *translation, e entry) {
	list, ok := e.Value.([]any)
	if !ok {
		list = []any{e.Value}
	}
	for _, v := range list {
		one := e
		one.Value = v
		s, _ := v.(string)
		switch s = strings.ToLower(s); {
		case v == nil || s == "none":
			t.off(one)
		case s == "tensorboard" || s == "wandb" || s == "mlflow" || s == "trackio":
			t.reports(one, s, true)
		default:
			t.missing(one, "training.report_to knows tensorboard, wandb, mlflow, trackio, prometheus, csv, webhook "+
				"and kubeflow; metrics.jsonl in output_dir has all numbers")
		}
	}
}

// wandbMode reports that runs are always written offline.
func wandbMode(t *translation, e entry) {
	switch e.Value {
	case "offline":
		t.add(Taken, e, "", nil, "a run is written offline, for wandb sync")
	case "online":
		t.add(Different, e, "", nil, "a run is written offline; wandb sync uploads it")
	default:
		t.missing(e, "leave wandb out of training.report_to, or set WANDB_MODE")
	}
}

// trackersRead drops settings that no tracker of the run reads.
func (t *translation) trackersRead() {
	list, _ := t.value(reports).([]any)
	read := func(names ...string) bool {
		return slices.ContainsFunc(list, func(v any) bool { s, _ := v.(string); return slices.Contains(names, s) })
	}
	if !read("wandb", "mlflow", "trackio") {
		t.drop("tracking.experiment", "no tracker of the run has experiments")
		t.drop("tracking.run_name", "no tracker of the run has names; output_dir names the run")
	}
}
