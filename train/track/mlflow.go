package track

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tierlora/tierlora/internal/safetext"
)

// Limits of MLflow's REST API 2.0 (runs/log-batch): of one request, and of a parameter.
const (
	mlflowMetrics    = 1000
	mlflowParams     = 100
	mlflowTags       = 100
	mlflowParamValue = 6000 // characters
	mlflowKey        = 250
)

// mlflow sends a run to an MLflow server through its REST API.
type mlflow struct {
	run    Run
	base   *url.URL
	header http.Header
	client *http.Client
	id     string // the server's id of the run, "" before the run is created
	ready  bool   // the parameters were sent
	own    bool   // this process created the run
}

// NewMLflow returns the tracker of report_to: mlflow.
func NewMLflow(r Run) (Tracker, error) {
	from, text := "tracking.mlflow_url", r.MLflowURL
	if text == "" {
		from, text = "MLFLOW_TRACKING_URI", r.Getenv("MLFLOW_TRACKING_URI")
	}
	if text == "" {
		return nil, errors.New("training.report_to: mlflow needs tracking.mlflow_url, or MLFLOW_TRACKING_URI in the " +
			"environment")
	}
	u, err := address(from, text)
	if err != nil {
		return nil, fmt.Errorf("%w; MLflow's folders and databases are written by its server alone", err)
	}
	m := &mlflow{run: r, base: u, header: http.Header{}, client: newClient(nil), id: r.Getenv("MLFLOW_RUN_ID")}
	if token := r.Getenv("MLFLOW_TRACKING_TOKEN"); token != "" {
		m.header.Set("Authorization", "Bearer "+token)
	} else if user := r.Getenv("MLFLOW_TRACKING_USERNAME"); user != "" {
		req := http.Request{Header: m.header}
		req.SetBasicAuth(user, r.Getenv("MLFLOW_TRACKING_PASSWORD"))
		safetext.Keep(strings.TrimPrefix(m.header.Get("Authorization"), "Basic "))
	}
	return m, nil
}

type mlflowPair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type mlflowMetric struct {
	Key   string  `json:"key"`
	Value float64 `json:"value"`
	Time  int64   `json:"timestamp"` // milliseconds
	Step  int     `json:"step"`
}

type mlflowBatch struct {
	Run     string         `json:"run_id"`
	Metrics []mlflowMetric `json:"metrics,omitempty"`
	Params  []mlflowPair   `json:"params,omitempty"`
	Tags    []mlflowPair   `json:"tags,omitempty"`
}

// Send delivers whole requests. The events of a failed request are sent again; MLflow treats them as the same points.
func (m *mlflow) Send(ctx context.Context, events []Event) (int, error) {
	if !m.ready {
		if err := m.begin(ctx, events[0].Time); err != nil {
			return 0, err
		}
	}
	batch, sent := mlflowBatch{Run: m.id}, 0
	for i, e := range events {
		if len(batch.Metrics)+len(e.Metrics) > mlflowMetrics {
			if err := m.post(ctx, "runs/log-batch", batch, nil); err != nil {
				return sent, err
			}
			batch.Metrics, sent = nil, i
		}
		for _, x := range e.Metrics {
			if finite(x.Value) { // JSON has no other numbers
				batch.Metrics = append(batch.Metrics, mlflowMetric{x.Name, x.Value, e.Time.UnixMilli(), e.Step})
			}
		}
	}
	if len(batch.Metrics) > 0 {
		if err := m.post(ctx, "runs/log-batch", batch, nil); err != nil {
			return sent, err
		}
	}
	last := events[len(events)-1]
	if last.Kind != KindEnd {
		return len(events), nil
	}
	status := map[string]string{StatusDone: "FINISHED", StatusStopped: "KILLED", StatusFailed: "FAILED"}[last.Status]
	err := m.post(ctx, "runs/update",
		map[string]any{"run_id": m.id, "status": status, "end_time": last.Time.UnixMilli()}, nil)
	if err != nil {
		return len(events) - 1, err
	}
	return len(events), nil
}

// begin creates the run and sends its configuration. Repeating a failed request creates no second run.
func (m *mlflow) begin(ctx context.Context, at time.Time) error {
	if m.id == "" {
		experiment, err := m.experiment(ctx)
		if err != nil {
			return err
		}
		tags := []mlflowPair{{"mlflow.source.name", "trainer train"}, {"mlflow.source.type", "JOB"}}
		var made struct {
			Run struct {
				Info struct {
					ID string `json:"run_id"`
				} `json:"info"`
			} `json:"run"`
		}
		err = m.post(ctx, "runs/create", map[string]any{"experiment_id": experiment, "run_name": m.run.RunName,
			"start_time": at.UnixMilli(), "tags": tags}, &made)
		if err != nil {
			return err
		}
		if m.id, m.own = made.Run.Info.ID, true; m.id == "" {
			return &Permanent{fmt.Errorf("%s: is this an MLflow server? Its answer names no run", m.base.Host)}
		}
	}
	params, tags := m.pairs()
	for len(params)+len(tags) > 0 {
		p, t := min(len(params), mlflowParams), min(len(tags), mlflowTags)
		if err := m.post(ctx, "runs/log-batch", mlflowBatch{Run: m.id, Params: params[:p], Tags: tags[:t]},
			nil); err != nil {
			return err
		}
		params, tags = params[p:], tags[t:]
	}
	m.ready = true
	return nil
}

// pairs returns the parameters, which a continued run has already, and the tags.
func (m *mlflow) pairs() (params, tags []mlflowPair) {
	for _, p := range m.run.Params {
		if m.own && len(p.Key) <= mlflowKey {
			params = append(params, mlflowPair{p.Key, cut(p.Value, mlflowParamValue)})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.run.Tags)) {
		tags = append(tags, mlflowPair{cut(key, mlflowKey), cut(m.run.Tags[key], mlflowParamValue)})
	}
	if m.run.Done > 0 {
		tags = append(tags, mlflowPair{"resumed_from_step", fmt.Sprint(m.run.Done)})
	}
	return params, tags
}

func cut(text string, most int) string {
	if r := []rune(text); len(r) > most {
		return string(r[:most-3]) + "..."
	}
	return text
}

// experiment returns the ID of the experiment, which it creates if the server lacks it.
func (m *mlflow) experiment(ctx context.Context) (string, error) {
	name := m.run.Experiment
	if name == "" {
		name = "Default"
	}
	var found struct {
		Experiment struct {
			ID string `json:"experiment_id"`
		} `json:"experiment"`
	}
	get := func() error {
		u := m.method("experiments/get-by-name")
		u.RawQuery = url.Values{"experiment_name": {name}}.Encode()
		return call(ctx, m.client, http.MethodGet, u, m.header, nil, &found)
	}
	err := get()
	if answered(err, http.StatusNotFound, "RESOURCE_DOES_NOT_EXIST") {
		var made struct {
			ID string `json:"experiment_id"`
		}
		err = m.post(ctx, "experiments/create", map[string]string{"name": name}, &made)
		if err == nil {
			return made.ID, nil
		}
		if answered(err, http.StatusBadRequest, "RESOURCE_ALREADY_EXISTS") { // another run has just created it
			err = get()
		}
	}
	return found.Experiment.ID, err
}

// answered reports whether an error is an MLflow error of this kind.
func answered(err error, code int, kind string) bool {
	var s *statusError
	return errors.As(err, &s) && s.code == code && strings.Contains(string(s.body), kind)
}

func (m *mlflow) method(name string) *url.URL { return m.base.JoinPath("api/2.0/mlflow", name) }

func (m *mlflow) post(ctx context.Context, name string, body, reply any) error {
	return call(ctx, m.client, http.MethodPost, m.method(name), m.header, body, reply)
}

func (m *mlflow) Close() error { m.client.CloseIdleConnections(); return nil }
