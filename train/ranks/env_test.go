package ranks

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Where the rows' variables are documented.
const (
	fromTorchrun = "PyTorch 2.8, torch/distributed/run.py, Environment Variables"
	fromKubeflow = "kubeflow/trainer, pkg/runtime/framework/plugins/torch/torch.go and pkg/constants/constants.go"
	fromJAX      = "kubeflow/trainer, pkg/runtime/framework/plugins/jax/jax.go"
	fromSLURM    = "SLURM, srun(1), OUTPUT ENVIRONMENT VARIABLES; sbatch(1)"
	fromOpenMPI  = "Open MPI 5.0, 11.1 Environment variables set for MPI applications"
	fromHere     = "docs/LAUNCH.md"
)

// env reads "A=1 B=2".
func env(words string) func(string) string {
	set := map[string]string{}
	for _, w := range strings.Fields(words) {
		name, value, _ := strings.Cut(w, "=")
		set[name] = value
	}
	return func(name string) string { return set[name] }
}

func TestFromEnv(t *testing.T) {
	const run = "TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_USE_AGENT_STORE=True "
	const step = "SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_NODEID=2 SLURM_NTASKS=8 " +
		"SLURM_STEP_NUM_TASKS=8 SLURM_STEP_TASKS_PER_NODE=2(x4) SLURM_STEP_NUM_NODES=4 "
	for _, c := range []struct {
		name, source, env string
		want              Place
	}{
		{"nothing", fromHere, "HOME=/root", Place{World: 1, LocalWorld: 1}},
		{"torchrun, two hosts", fromTorchrun,
			run + "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node0.cluster MASTER_PORT=29500 GROUP_RANK=1 ROLE_RANK=3",
			Place{Rank: 3, World: 4, LocalRank: 1, LocalWorld: 2, Coordinator: "node0.cluster:29501", Launcher: "torchrun", Run: "none, restart 0"}},
		{"torchrun, one process", fromTorchrun, run + "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=a MASTER_PORT=29500",
			Place{World: 1, LocalWorld: 1, Launcher: "torchrun", Run: "none, restart 0"}},
		{"torchrun on the highest port", fromTorchrun, run + "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=65535",
			Place{World: 2, LocalWorld: 2, Coordinator: "[::1]:65534", Launcher: "torchrun", Run: "none, restart 0"}},
		{"ssh, by hand", fromHere, "RANK=1 WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=4000",
			Place{Rank: 1, World: 2, LocalWorld: 1, Coordinator: "10.0.0.1:4000", Launcher: "torchrun"}},
		{"DeepSpeed's launcher, no LOCAL_WORLD_SIZE", "DeepSpeed, launcher/launch.py", "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 MASTER_ADDR=h MASTER_PORT=29500",
			Place{Rank: 3, World: 4, LocalRank: 1, Coordinator: "h:29500", Launcher: "torchrun"}},
		{"this program's variables win", fromHere,
			run + "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=a MASTER_PORT=29500 TRAINER_COORDINATOR=b:7 TRAINER_RUN_ID=x",
			Place{World: 2, LocalWorld: 1, Coordinator: "b:7", Launcher: "torchrun", Run: "x"}},
		{"Kubeflow, torch policy", fromKubeflow,
			"PET_NNODES=2 PET_NPROC_PER_NODE=auto PET_NODE_RANK=1 PET_MASTER_ADDR=job-node-0-0.job PET_MASTER_PORT=29500",
			Place{Rank: 1, World: 2, LocalWorld: 1, Coordinator: "job-node-0-0.job:29500", Launcher: "Kubeflow", Devices: AllDevices}},
		{"Kubeflow, four cards a pod", fromKubeflow,
			"PET_NNODES=2 PET_NPROC_PER_NODE=4 PET_NODE_RANK=0 PET_MASTER_ADDR=job-node-0-0.job PET_MASTER_PORT=29500",
			Place{World: 2, LocalWorld: 1, Coordinator: "job-node-0-0.job:29500", Launcher: "Kubeflow", Devices: 4}},
		{"Kubeflow, one pod", fromKubeflow, "PET_NNODES=1 PET_NPROC_PER_NODE=gpu PET_NODE_RANK=0 PET_MASTER_ADDR=j PET_MASTER_PORT=29500",
			Place{World: 1, LocalWorld: 1, Launcher: "Kubeflow", Devices: AllDevices}},
		{"Kubeflow, cpu", fromKubeflow, "PET_NNODES=1 PET_NPROC_PER_NODE=cpu PET_NODE_RANK=0", Place{World: 1, LocalWorld: 1, Launcher: "Kubeflow"}},
		{"torchrun in a pod of Kubeflow", fromKubeflow + "; " + fromTorchrun,
			run + "PET_NNODES=2 PET_NPROC_PER_NODE=2 PET_NODE_RANK=1 PET_MASTER_ADDR=j PET_MASTER_PORT=29500 " +
				"RANK=2 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=j MASTER_PORT=29500",
			Place{Rank: 2, World: 4, LocalWorld: 2, Coordinator: "j:29501", Launcher: "torchrun", Run: "none, restart 0"}},
		{"Kubeflow, jax policy", fromJAX, "JAX_NUM_PROCESSES=3 JAX_PROCESS_ID=2 JAX_COORDINATOR_ADDRESS=job-node-0-0.job:6666 JAX_COORDINATOR_PORT=6666",
			Place{Rank: 2, World: 3, LocalWorld: 1, Coordinator: "job-node-0-0.job:6666", Launcher: "JAX"}},
		{"jax, the port apart", fromJAX, "JAX_NUM_PROCESSES=3 JAX_PROCESS_ID=0 JAX_COORDINATOR_ADDRESS=job-node-0-0.job JAX_COORDINATOR_PORT=6666",
			Place{World: 3, LocalWorld: 1, Coordinator: "job-node-0-0.job:6666", Launcher: "JAX"}},
		{"srun", fromSLURM, step + "SLURM_STEP_NODELIST=gpu[07-08,11],big1 SLURM_LAUNCH_NODE_IPADDR=10.1.1.1",
			Place{Rank: 5, World: 8, LocalRank: 1, LocalWorld: 2, Coordinator: join("gpu07", jobPort("job 77 step 0")), Launcher: "SLURM", Run: "job 77 step 0"}},
		{"srun with MASTER_ADDR of the script", fromSLURM, step + "SLURM_STEP_NODELIST=gpu[07-08,11],big1 MASTER_ADDR=gpu07-ib MASTER_PORT=12345 WORLD_SIZE=8",
			Place{Rank: 5, World: 8, LocalRank: 1, LocalWorld: 2, Coordinator: "gpu07-ib:12345", Launcher: "SLURM", Run: "job 77 step 0"}},
		{"srun without a list of nodes", fromSLURM, step + "SLURM_LAUNCH_NODE_IPADDR=10.1.1.1",
			Place{Rank: 5, World: 8, LocalRank: 1, LocalWorld: 2, Coordinator: join("10.1.1.1", jobPort("job 77 step 0")), Launcher: "SLURM", Run: "job 77 step 0"}},
		{"srun on one node", fromSLURM, "SLURM_JOB_ID=5 SLURM_STEP_ID=1 SLURM_PROCID=1 SLURM_LOCALID=1 SLURM_NODEID=0 SLURM_STEP_NUM_TASKS=2 " +
			"SLURM_STEP_TASKS_PER_NODE=2 SLURM_STEP_NODELIST=n1 SLURM_RESTART_COUNT=1",
			Place{Rank: 1, World: 2, LocalRank: 1, LocalWorld: 2, Coordinator: join(loopback, jobPort("job 5 step 1 restart 1")), Launcher: "SLURM", Run: "job 5 step 1 restart 1"}},
		{"sbatch without srun", fromSLURM, "SLURM_JOB_ID=77 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=8 SLURM_NTASKS_PER_NODE=2 SLURM_JOB_NODELIST=n[1-4]",
			Place{World: 1, LocalWorld: 1}},
		{"an interactive shell of salloc", fromSLURM, step + "SLURM_STEP_ID=4294967290", Place{World: 1, LocalWorld: 1}},
		{"torchrun under srun", fromSLURM + "; " + fromTorchrun,
			step + run + "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=gpu07 MASTER_PORT=29500",
			Place{Rank: 5, World: 8, LocalRank: 1, LocalWorld: 2, Coordinator: "gpu07:29501", Launcher: "torchrun", Run: "none, restart 0"}},
		{"srun, though torchrun has set variables", fromHere,
			step + "SLURM_STEP_NODELIST=n[1-4] RANK=0 WORLD_SIZE=2 TRAINER_LAUNCHER=slurm",
			Place{Rank: 5, World: 8, LocalRank: 1, LocalWorld: 2, Coordinator: join("n1", jobPort("job 77 step 0")), Launcher: "SLURM", Run: "job 77 step 0"}},
		{"mpirun on one host", fromOpenMPI,
			"OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 PMIX_NAMESPACE=prterun-h-12@1",
			Place{Rank: 1, World: 2, LocalRank: 1, LocalWorld: 2, Coordinator: join(loopback, jobPort("openmpi prterun-h-12@1")), Launcher: "Open MPI", Run: "prterun-h-12@1"}},
		{"mpirun on two hosts", fromOpenMPI,
			"OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 MASTER_ADDR=h0 MASTER_PORT=99",
			Place{Rank: 1, World: 4, LocalRank: 1, LocalWorld: 2, Coordinator: "h0:99", Launcher: "Open MPI"}},
		{"mpirun in a job of SLURM", fromOpenMPI + "; " + fromSLURM,
			step + "SLURM_JOB_NODELIST=n[3-4] OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1",
			Place{Rank: 1, World: 4, LocalRank: 1, LocalWorld: 2, Coordinator: join("n3", jobPort("openmpi ")), Launcher: "Open MPI"}},
		{"none of them", fromHere, "RANK=1 WORLD_SIZE=2 TRAINER_LAUNCHER=none", Place{World: 1, LocalWorld: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := FromEnv(env(c.env))
			if err != nil || got != c.want {
				t.Errorf("%+v, %v; want %+v (%s)", got, err, c.want, c.source)
			}
		})
	}
}

func TestFromEnvRefuses(t *testing.T) {
	const srun = "SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE=2(x2) "
	for _, c := range []struct{ env, want string }{
		{"RANK=1", "RANK=1 is set and WORLD_SIZE is not"},
		{"WORLD_SIZE=4", "WORLD_SIZE=4 is set and RANK is not"},
		{"LOCAL_RANK=1", "LOCAL_RANK=1 is set and RANK is not"},
		{"RANK=2 WORLD_SIZE=2", "RANK=2 is not from 0 to 1, as WORLD_SIZE=2 asks"},
		{"RANK=-1 WORLD_SIZE=2", "RANK=-1 is not a whole number from 0 to 65535"},
		{"RANK=one WORLD_SIZE=2", "RANK=one is not a whole number"},
		{"RANK=0 WORLD_SIZE=99999999999999999999", "WORLD_SIZE=99999999999999999999 is not a whole number from 1 to 65536"},
		{"RANK=0 WORLD_SIZE=0", "WORLD_SIZE=0 is not a whole number from 1 to 65536"},
		{"RANK=0 WORLD_SIZE=" + strings.Repeat("9", 5000), "…"},
		{"RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2", "LOCAL_RANK is not set"},
		{"RANK=0 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", "LOCAL_RANK=2 is not from 0 to 1, as LOCAL_WORLD_SIZE=2 asks"},
		{"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=4", "LOCAL_WORLD_SIZE=4 is more than the 2 of all hosts"},
		{"RANK=0 WORLD_SIZE=2", "MASTER_ADDR is not set"},
		{"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=http", "MASTER_PORT=http is not a whole number from 1 to 65535"},
		{"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=70000", "MASTER_PORT=70000"},
		{"RANK=0 WORLD_SIZE=2 TRAINER_COORDINATOR=h", `"h" is not host:port`},
		{"RANK=0 WORLD_SIZE=2 TRAINER_COORDINATOR=:99", "no host"},
		{"RANK=0 WORLD_SIZE=2 TRAINER_COORDINATOR=h:x", `port "x" is not a number`},
		{"PET_NNODES=2", "PET_NODE_RANK is not set"},
		{"PET_NODE_RANK=0", "PET_NNODES is not set"},
		{"PET_NNODES=1:4 PET_NODE_RANK=0", "PET_NNODES=1:4 is not a whole number"},
		{"PET_NNODES=2 PET_NODE_RANK=0 PET_NPROC_PER_NODE=tpu", "PET_NPROC_PER_NODE=tpu is not a whole number from 1 to 65536, or auto, gpu, cpu"},
		{"PET_NNODES=2 PET_NODE_RANK=0", "PET_MASTER_ADDR is not set"},
		{"JAX_PROCESS_ID=0", "JAX_NUM_PROCESSES is not set"},
		{"JAX_NUM_PROCESSES=2 JAX_PROCESS_ID=0", "JAX_COORDINATOR_ADDRESS is not set"},
		{"JAX_NUM_PROCESSES=2 JAX_PROCESS_ID=0 JAX_COORDINATOR_ADDRESS=h", "JAX_COORDINATOR_ADDRESS=h has no port, and JAX_COORDINATOR_PORT is not set"},
		{srun, "SLURM_STEP_NODELIST is not set"},
		{srun + "SLURM_STEP_NODELIST=n[1", "SLURM_STEP_NODELIST=n[1: a bracket is not closed"},
		{srun + "SLURM_NODEID=9", "it has fewer nodes than SLURM_NODEID says"},
		{srun + "SLURM_STEP_TASKS_PER_NODE=2(y2)", `"2(y2)" is not a number of tasks`},
		{srun + "SLURM_LOCALID=3", "SLURM_LOCALID=3 is not from 0 to 1, as SLURM_STEP_TASKS_PER_NODE=2(x2) asks"},
		{srun + "SLURM_PROCID=4", "SLURM_PROCID=4 is not from 0 to 3, as SLURM_STEP_NUM_TASKS=4 asks"},
		{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE is not set"},
		{"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2", "mpirun -x MASTER_ADDR=HOST"},
		{"TRAINER_LAUNCHER=slurm", "slurm has set no variables here"},
		{"TRAINER_LAUNCHER=pbs", "TRAINER_LAUNCHER=pbs is not one of none, torchrun, openmpi, kubeflow, jax, slurm"},
	} {
		p, err := FromEnv(env(c.env))
		if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 600 {
			t.Errorf("%.200s: %+v, %v; want %s", c.env, p, err, c.want)
		}
	}
}

func TestNodes(t *testing.T) {
	for _, c := range []struct{ list, want string }{
		{"n1", "n1"},
		{"gpu[01-03,7],big", "gpu01 gpu02 gpu03 gpu7 big"},
		{"r[0-1]n[08-10]-ib", "r0n08-ib r0n09-ib r0n10-ib r1n08-ib r1n09-ib r1n10-ib"},
		{"dev[7-10]", "dev7 dev8 dev9 dev10"},
	} {
		hosts, err := Nodes(c.list)
		if got := strings.Join(hosts, " "); err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", c.list, got, err, c.want)
		}
	}
	for list, want := range map[string]string{
		"": "no name", "a,,b": "no name", "n[1-": "not closed", "n]": "out of place", "n[[1]]": "out of place", "n[]": "not a number", "n[3-1]": "not a number",
		"n[a]": "not a number", "n[1-99999999]": "more than 65536", "n[0-9999][0-9999]": "more than 65536", "a b": "no part of a host's name",
		strings.Repeat("a", 254): "253 bytes", "n[" + strings.Repeat("0", 300) + "1]": "253 bytes", strings.Repeat("a,", 1<<20): "more than a list",
	} {
		if _, err := Nodes(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v; want %s", list, err, want)
		}
	}
}

func FuzzNodes(f *testing.F) {
	for _, s := range []string{"n1", "gpu[01-03,7],big", "r[0-1]n[08-10]-ib", "n[1-", "2(x3),1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		hosts, err := Nodes(list)
		if err == nil && (len(hosts) == 0 || len(hosts) > MaxWorld) {
			t.Fatalf("%d hosts", len(hosts))
		}
		for _, h := range hosts {
			if h == "" || len(h) > 253 || strings.ContainsAny(h, "[], ") {
				t.Fatalf("host %q", h)
			}
		}
		if n, err := tasksOf(list, 1); err == nil && (n < 1 || n > MaxWorld) {
			t.Fatalf("%d tasks", n)
		}
	})
}

// A variable's long value is cut between two characters, so that the error is valid UTF-8.
func TestLongValueIsCutBetweenCharacters(t *testing.T) {
	for shift := range 3 {
		value := strings.Repeat("a", shift) + strings.Repeat("東", 60)
		_, err := FromEnv(func(name string) string {
			return map[string]string{LauncherVariable: value}[name]
		})
		if err == nil || !utf8.ValidString(err.Error()) || !strings.Contains(err.Error(), "東…") {
			t.Errorf("shift %d: the error is %v", shift, err)
		}
	}
}
