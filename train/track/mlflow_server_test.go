//go:build unix

package track

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMLflowServer: MLflow's own server, where TRAINER_PYTHON is a Python that has it, gives back every number, parameter
// and tag, and the run's end.
func TestMLflowServer(t *testing.T) {
	python := os.Getenv("TRAINER_PYTHON")
	if python == "" {
		t.Skip("TRAINER_PYTHON is not set")
	}
	if exec.Command(python, "-c", "import importlib.util, sys; sys.exit(not importlib.util.find_spec('mlflow.server'))").Run() != nil {
		t.Skipf("%s has no mlflow", python)
	}
	url := mlflowServer(t, python)
	m, err := NewMLflow(Run{Config: Config{RunName: "r", Experiment: "e x", MLflowURL: url, Tags: map[string]string{"team": "a"}}, Params: []Param{{"lora.r", "8"}, {"long", strings.Repeat("v", 9000)}}, Getenv: environ()})
	if err != nil {
		t.Fatal(err)
	}
	events := []Event{{Kind: KindStart, Time: at}}
	for i := range 300 {
		events = append(events, Event{Kind: KindStep, Time: at.Add(time.Duration(i) * time.Second), Step: i + 1, Metrics: Metrics{{"loss", 1 / float64(i+3)}, {"nan", math.NaN()}}})
	}
	mustSend(t, m, events...)
	mustSend(t, m, Event{Kind: KindEnd, Time: at, Step: 300, Status: StatusStopped})

	var experiment struct {
		Experiment struct {
			ID string `json:"experiment_id"`
		}
	}
	mlflowAsks(t, url+"/api/2.0/mlflow/experiments/get-by-name?experiment_name=e+x", "", &experiment)
	var found struct {
		Runs []struct {
			Info struct {
				ID     string `json:"run_id"`
				Name   string `json:"run_name"`
				Status string
			}
			Data struct {
				Params, Tags []struct{ Key, Value string }
			}
		}
	}
	mlflowAsks(t, url+"/api/2.0/mlflow/runs/search", `{"experiment_ids":["`+experiment.Experiment.ID+`"]}`, &found)
	if len(found.Runs) != 1 {
		t.Fatalf("%d runs", len(found.Runs))
	}
	run := found.Runs[0]
	said := fmt.Sprint(run.Data.Params, run.Data.Tags)
	if run.Info.Status != "KILLED" || run.Info.Name != "r" || !strings.Contains(said, "{lora.r 8}") || !strings.Contains(said, "{team a}") {
		t.Errorf("%+v", run.Info)
	}
	var history struct {
		Metrics []struct {
			Value float64
			Step  int
		}
	}
	mlflowAsks(t, url+"/api/2.0/mlflow/metrics/get-history?metric_key=loss&run_id="+run.Info.ID, "", &history)
	if len(history.Metrics) != 300 {
		t.Fatalf("%d points", len(history.Metrics))
	}
	for _, p := range history.Metrics {
		if p.Value != 1/float64(p.Step+2) {
			t.Errorf("step %d: %v", p.Step, p.Value)
		}
	}
}

// mlflowServer starts a server with a database of its own.
func mlflowServer(t *testing.T, python string) (url string) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", fmt.Sprint(port), "--workers", "1",
		"--backend-store-uri", "sqlite:///"+filepath.Join(dir, "mlflow.db"), "--default-artifact-root", dir)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = dir, log, log, append(os.Environ(), "HOME="+dir, "MLFLOW_DISABLE_TELEMETRY=true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		log.Close()
	})
	url = fmt.Sprintf("http://127.0.0.1:%d", port)
	for until := time.Now().Add(3 * time.Minute); time.Now().Before(until); time.Sleep(300 * time.Millisecond) {
		if r, err := http.Get(url + "/health"); err == nil {
			r.Body.Close()
			if r.StatusCode == 200 {
				return url
			}
		}
	}
	text, _ := os.ReadFile(log.Name())
	t.Fatalf("the server does not answer: %s", text)
	return ""
}

func mlflowAsks(t *testing.T, url, body string, answer any) {
	t.Helper()
	r, err := http.Get(url)
	if body != "" {
		r, err = http.Post(url, "application/json", strings.NewReader(body))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(answer); err != nil || r.StatusCode != 200 {
		t.Fatalf("%s: %d, %v", url, r.StatusCode, err)
	}
}
