package track

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// asked is a server that keeps what it was asked; answer may be nil.
func asked(t *testing.T, secure bool, answer func(path, body string) (int, string)) (*httptest.Server, *[]string) {
	t.Helper()
	var all []string
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) //nolint:errcheck // a test
		all = append(all, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization")+" "+string(body))
		if answer != nil {
			code, text := answer(r.URL.Path, string(body))
			w.WriteHeader(code)
			io.WriteString(w, text) //nolint:errcheck // a test
		}
	})
	server := httptest.NewUnstartedServer(handler)
	if secure {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server, &all
}

func environ(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func mustSend(t *testing.T, tr Tracker, events ...Event) {
	t.Helper()
	if n, err := tr.Send(t.Context(), events); err != nil || n != len(events) {
		t.Fatal(n, err)
	}
}

var at = time.Unix(1700000000, 0).UTC()

func TestWebhookPosts(t *testing.T) {
	server, got := asked(t, false, nil)
	hook, err := NewWebhook(Run{Config: Config{RunName: "r", Tags: map[string]string{"a": "b"}}, Getenv: environ(webhookURLVariable, server.URL+"/x", webhookSecretVariable, "s3cret")})
	if err != nil {
		t.Fatal(err)
	}
	mustSend(t, hook, Event{Kind: KindStep, Time: at, Step: 3, Total: 6, Metrics: Metrics{{"loss", 2.5}, {"grad_norm", math.NaN()}}})
	want := `POST /x Bearer s3cret {"event":"step","time":"2023-11-14T22:13:20Z","step":3,"max_steps":6,"metrics":{"loss":2.5,"grad_norm":null},"run_name":"r","tags":{"a":"b"}}`
	if len(*got) != 1 || (*got)[0] != want {
		t.Errorf("got  %q\nwant %q", *got, want)
	}
}

// TestKubeflowReports: the JSON of kubeflow/trainer's TrainerStatus, the certificate and the token of the moment.
func TestKubeflowReports(t *testing.T) {
	server, got := asked(t, true, nil)
	dir := t.TempDir()
	ca, token := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	write(token, "one\n")
	k, err := NewKubeflow(Run{Total: 10, Getenv: environ(kubeflowURL, server.URL+"/status", kubeflowCA, ca, kubeflowToken, token)})
	if err != nil {
		t.Fatal(err)
	}
	loss := func(x float64) Metrics { return Metrics{{"loss", x}} }
	mustSend(t, k, Event{Kind: KindStart, Time: at})
	mustSend(t, k, Event{Kind: KindStep, Time: at.Add(time.Second), Step: 1, Metrics: loss(3)}) // too soon
	write(token, "two\n")
	mustSend(t, k, Event{Kind: KindStep, Time: at.Add(8 * time.Second), Step: 4, Metrics: loss(2)})
	mustSend(t, k, Event{Kind: KindEnd, Time: at.Add(9 * time.Second), Step: 10, Status: StatusDone})
	want := []string{
		`POST /status Bearer one {"trainerStatus":{"progressPercentage":0,"lastUpdatedTime":"2023-11-14T22:13:20Z"}}`,
		`POST /status Bearer two {"trainerStatus":{"progressPercentage":40,"estimatedRemainingSeconds":12,"metrics":[{"name":"loss","value":"2"}],"lastUpdatedTime":"2023-11-14T22:13:28Z"}}`,
		`POST /status Bearer two {"trainerStatus":{"progressPercentage":100,"estimatedRemainingSeconds":0,"metrics":[{"name":"loss","value":"2"}],"lastUpdatedTime":"2023-11-14T22:13:29Z"}}`,
	}
	if strings.Join(*got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(*got, "\n"), strings.Join(want, "\n"))
	}
}

// TestMLflowRequests: a server that keeps to the documented limits of the REST API 2.0.
func TestMLflowRequests(t *testing.T) {
	points, params := 0, 0
	server, got := asked(t, false, func(path, body string) (int, string) {
		switch path {
		case "/api/2.0/mlflow/experiments/get-by-name":
			return 404, `{"error_code":"RESOURCE_DOES_NOT_EXIST"}`
		case "/api/2.0/mlflow/experiments/create":
			return 200, `{"experiment_id":"7"}`
		case "/api/2.0/mlflow/runs/create":
			return 200, `{"run":{"info":{"run_id":"abc"}}}`
		case "/api/2.0/mlflow/runs/log-batch":
			var b mlflowBatch
			if err := json.Unmarshal([]byte(body), &b); err != nil || b.Run != "abc" || len(body) > 1<<20 {
				return 400, "no batch"
			}
			if len(b.Metrics) > 1000 || len(b.Params) > 100 || len(b.Tags) > 100 || len(b.Metrics)+len(b.Params)+len(b.Tags) > 1000 {
				return 400, "too much"
			}
			for _, p := range b.Params {
				if len(p.Value) > 6000 {
					return 400, "too long"
				}
			}
			points, params = points+len(b.Metrics), params+len(b.Params)
			return 200, "{}"
		case "/api/2.0/mlflow/runs/update":
			return 200, "{}"
		}
		return 404, "?"
	})
	r := Run{Config: Config{RunName: "r", Experiment: "e x", MLflowURL: server.URL}, Getenv: environ("MLFLOW_TRACKING_USERNAME", "me", "MLFLOW_TRACKING_PASSWORD", "pw")}
	for i := range 150 {
		r.Params = append(r.Params, Param{fmt.Sprint("key", i), strings.Repeat("v", 100*i)})
	}
	m, err := NewMLflow(r)
	if err != nil {
		t.Fatal(err)
	}
	events := []Event{{Kind: KindStart, Time: at}}
	for i := range 300 {
		events = append(events, Event{Kind: KindStep, Time: at, Step: i + 1, Metrics: Metrics{{"a", 1}, {"b", 2}, {"c", 3}, {"d", math.Inf(1)}}})
	}
	mustSend(t, m, events...)
	mustSend(t, m, Event{Kind: KindEnd, Time: at, Step: 300, Status: StatusStopped})
	all := strings.Join(*got, "\n")
	if points != 900 || params != 150 {
		t.Errorf("%d points and %d parameters", points, params)
	}
	for _, want := range []string{
		"GET /api/2.0/mlflow/experiments/get-by-name?experiment_name=e+x Basic bWU6cHc= ",
		`POST /api/2.0/mlflow/experiments/create Basic bWU6cHc= {"name":"e x"}`,
		`"run_name":"r","start_time":1700000000000`, `{"end_time":1700000000000,"run_id":"abc","status":"KILLED"}`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%s is missing", want)
		}
	}
	if n := strings.Count(all, "runs/create"); n != 1 {
		t.Errorf("%d runs", n)
	}
}

func TestPrometheusText(t *testing.T) {
	dir := t.TempDir()
	p, err := NewPrometheus(Run{Config: Config{RunName: "a\"b", MetricsAddr: "127.0.0.1:0"}, Dir: dir, Total: 6, Getenv: environ()})
	if err != nil {
		t.Fatal(err)
	}
	mustSend(t, p, Event{Kind: KindStart}, Event{Kind: KindStep, Step: 2, Metrics: Metrics{{"loss", 2.5}, {"grad_norm", math.Inf(1)}}}, Event{Kind: KindEval, Step: 2, Metrics: Metrics{{"eval_loss", 3}}})
	file, err := os.ReadFile(filepath.Join(dir, MetricsPromFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# TYPE tierlora_loss gauge\ntierlora_loss{run=\"a\\\"b\"} 2.5\n", "tierlora_grad_norm{run=\"a\\\"b\"} +Inf\n", "tierlora_step{run=\"a\\\"b\"} 2\n", "tierlora_eval_loss"} {
		if !strings.Contains(string(file), want) {
			t.Errorf("%q is missing in\n%s", want, file)
		}
	}
	resp, err := http.Get("http://" + p.(*prometheus).listen.Addr().(*net.TCPAddr).String() + "/metrics") //nolint:errcheck // it is one
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	if text, err := io.ReadAll(resp.Body); err != nil || string(text) != string(file) {
		t.Errorf("served %q, %v", text, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
