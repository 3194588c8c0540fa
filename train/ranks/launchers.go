package ranks

import (
	"fmt"
	"net"
	"strings"

	"github.com/tierlora/tierlora/internal/words"
)

const loopback = "127.0.0.1"

// torchrunPort is the default port of the rendezvous of torchrun and Kubeflow.
const torchrunPort = 29500

// torchrun reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which torchrun,
// DeepSpeed's launcher, trainer launch and people with ssh set. torchrun itself listens on MASTER_PORT, so rank 0 takes
// the next port.
func torchrun(v variables) (p Place, said bool, err error) {
	if !v.has("RANK") || !v.has("WORLD_SIZE") {
		for _, name := range []string{"RANK", "WORLD_SIZE", "LOCAL_RANK"} {
			if v.has(name) {
				missing := "RANK"
				if name == "RANK" {
					missing = "WORLD_SIZE"
				}
				return p, false, fmt.Errorf("%s=%s is set and %s is not", name, words.Clip(v.get(name), maxShown),
					missing)
			}
		}
		return p, false, nil
	}
	p.Launcher = "torchrun"
	if p.Rank, p.World, err = v.within("RANK", "WORLD_SIZE"); err != nil {
		return p, true, err
	}
	if p.LocalRank, p.LocalWorld, err = v.local("LOCAL_RANK", "LOCAL_WORLD_SIZE", p.World); err != nil {
		return p, true, err
	}
	p.Run = v.get("TORCHELASTIC_RUN_ID")
	if count := v.get("TORCHELASTIC_RESTART_COUNT"); count != "" {
		p.Run += ", restart " + count
	}
	if p.World == 1 || v.has(CoordinatorVariable) {
		return p, true, nil
	}
	host := v.get("MASTER_ADDR")
	if host == "" {
		if p.LocalWorld != p.World {
			return p, true, fmt.Errorf("MASTER_ADDR is not set: the host of rank 0")
		}
		host = loopback
	}
	port, err := v.port("MASTER_PORT", torchrunPort)
	if v.has("TORCHELASTIC_RUN_ID") || v.has("TORCHELASTIC_USE_AGENT_STORE") {
		port = behind(port)
	}
	p.Coordinator = join(host, port)
	return p, true, err
}

// openMPI reads what mpirun sets. That does not include the host of rank 0, which comes from MASTER_ADDR (mpirun -x
// MASTER_ADDR=...) or from SLURM's list of nodes, unless all ranks are on one host.
func openMPI(v variables) (p Place, said bool, err error) {
	if !v.has("OMPI_COMM_WORLD_RANK") && !v.has("OMPI_COMM_WORLD_SIZE") {
		return p, false, nil
	}
	p.Launcher = "Open MPI"
	if p.Rank, p.World, err = v.within("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"); err != nil {
		return p, true, err
	}
	if p.LocalRank, p.LocalWorld, err = v.local("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
		p.World); err != nil {
		return p, true, err
	}
	for _, name := range []string{"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"} {
		if p.Run == "" {
			p.Run = v.get(name)
		}
	}
	if p.World == 1 || v.has(CoordinatorVariable) {
		return p, true, nil
	}
	host := v.get("MASTER_ADDR")
	if host == "" && p.LocalWorld == p.World {
		host = loopback
	}
	if host == "" {
		if host, err = v.firstNode("SLURM_JOB_NODELIST"); err != nil {
			return p, true, err
		}
	}
	if host == "" {
		return p, true, fmt.Errorf("MASTER_ADDR is not set, and mpirun does not say where rank 0 is: mpirun -x " +
			"MASTER_ADDR=HOST")
	}
	port, err := v.port("MASTER_PORT", jobPort("openmpi "+p.Run))
	p.Coordinator = join(host, port)
	return p, true, err
}

// kubeflow reads what the torch policy of Kubeflow Trainer v2 sets: one process a pod, which drives the pod's GPUs. No
// torchrun listens on PET_MASTER_PORT there.
func kubeflow(v variables) (p Place, said bool, err error) {
	if !v.has("PET_NODE_RANK") && !v.has("PET_NNODES") {
		return p, false, nil
	}
	p.Launcher = "Kubeflow"
	if p.Rank, p.World, err = v.within("PET_NODE_RANK", "PET_NNODES"); err != nil {
		return p, true, err
	}
	p.LocalWorld = 1
	switch each := v.get("PET_NPROC_PER_NODE"); each {
	case "", "cpu":
	case "auto", "gpu":
		p.Devices = AllDevices
	default:
		if p.Devices, err = v.number("PET_NPROC_PER_NODE", 1, MaxWorld); err != nil {
			return p, true, fmt.Errorf("%w, or auto, gpu, cpu", err)
		}
	}
	if p.World == 1 || v.has(CoordinatorVariable) {
		return p, true, nil
	}
	host := v.get("PET_MASTER_ADDR")
	if host == "" {
		return p, true, fmt.Errorf("PET_MASTER_ADDR is not set: the host of rank 0")
	}
	port, err := v.port("PET_MASTER_PORT", torchrunPort)
	p.Coordinator, p.Run = join(host, port), host
	return p, true, err
}

// jax reads what the jax policy of Kubeflow Trainer v2 sets, and what JAX itself reads: one process a pod or host.
func jax(v variables) (p Place, said bool, err error) {
	if !v.has("JAX_PROCESS_ID") && !v.has("JAX_NUM_PROCESSES") {
		return p, false, nil
	}
	p.Launcher = "JAX"
	if p.Rank, p.World, err = v.within("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"); err != nil {
		return p, true, err
	}
	p.LocalWorld = 1
	if p.World == 1 || v.has(CoordinatorVariable) {
		return p, true, nil
	}
	p.Coordinator = v.get("JAX_COORDINATOR_ADDRESS")
	if p.Coordinator == "" {
		return p, true, fmt.Errorf("JAX_COORDINATOR_ADDRESS is not set: the host and port of process 0")
	}
	if _, _, err := net.SplitHostPort(p.Coordinator); err != nil {
		port, err := v.number("JAX_COORDINATOR_PORT", 1, 65535)
		if err != nil {
			return p, true, fmt.Errorf("JAX_COORDINATOR_ADDRESS=%s has no port, and %w",
				words.Clip(p.Coordinator, maxShown), err)
		}
		p.Coordinator = join(strings.Trim(p.Coordinator, "[]"), port)
	}
	return p, true, nil
}

// slurm reads what srun sets for the tasks of a step. Batch scripts and interactive shells have such variables too, but
// no step: there the process is alone. Rank 0 is on the first node of the step, which need not be the node where srun
// was called.
func slurm(v variables) (p Place, said bool, err error) {
	if !v.has("SLURM_PROCID") || !v.has("SLURM_STEP_NUM_TASKS") || !ofSrun(v.get("SLURM_STEP_ID")) {
		return p, false, nil
	}
	p.Launcher = "SLURM"
	if p.Rank, p.World, err = v.within("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"); err != nil {
		return p, true, err
	}
	if p.LocalRank, err = v.number("SLURM_LOCALID", 0, p.World-1); err != nil {
		return p, true, err
	}
	if p.LocalWorld, err = v.tasksHere(); err != nil {
		return p, true, err
	}
	if p.LocalWorld > 0 && p.LocalRank >= p.LocalWorld {
		return p, true, fmt.Errorf("SLURM_LOCALID=%d is not from 0 to %d, as SLURM_STEP_TASKS_PER_NODE=%s asks",
			p.LocalRank,
			p.LocalWorld-1, words.Clip(v.get("SLURM_STEP_TASKS_PER_NODE"), maxShown))
	}
	p.Run = "job " + v.get("SLURM_JOB_ID") + " step " + v.get("SLURM_STEP_ID")
	if count := v.get("SLURM_RESTART_COUNT"); count != "" {
		p.Run += " restart " + count
	}
	if p.World == 1 || v.has(CoordinatorVariable) {
		return p, true, nil
	}
	host := v.get("MASTER_ADDR")
	if host == "" && (p.LocalWorld == p.World || v.get("SLURM_STEP_NUM_NODES") == "1") {
		host = loopback
	}
	for _, list := range []string{"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"} {
		if host == "" {
			if host, err = v.firstNode(list); err != nil {
				return p, true, err
			}
		}
	}
	if host == "" {
		host = v.get("SLURM_LAUNCH_NODE_IPADDR")
	}
	if host == "" {
		return p, true, fmt.Errorf("SLURM_STEP_NODELIST is not set: the nodes of this step")
	}
	port, err := v.port("MASTER_PORT", jobPort(p.Run))
	p.Coordinator = join(host, port)
	return p, true, err
}

// ofSrun reports whether srun made the step. SLURM's own steps (batch scripts, interactive shells, the wait for the end
// of a job) have the highest numbers.
func ofSrun(step string) bool {
	switch step {
	case "batch", "interactive", "extern", "pending":
		return false
	}
	return len(step) < 10 || step < "4294967286"
}

// tasksHere returns the number of the step's tasks on this node, 0 if SLURM does not say.
func (v variables) tasksHere() (int, error) {
	const name = "SLURM_STEP_TASKS_PER_NODE"
	if !v.has(name) || !v.has("SLURM_NODEID") {
		if v.has("SLURM_NTASKS_PER_NODE") {
			return v.number("SLURM_NTASKS_PER_NODE", 1, MaxWorld)
		}
		return 0, nil
	}
	node, err := v.number("SLURM_NODEID", 0, MaxWorld-1)
	if err != nil {
		return 0, err
	}
	n, err := tasksOf(v.get(name), node)
	if err != nil {
		return 0, fmt.Errorf("%s=%s: %w", name, words.Clip(v.get(name), maxShown), err)
	}
	return n, nil
}

// firstNode returns the first of a list of nodes, empty if the variable is not set.
func (v variables) firstNode(name string) (string, error) {
	if !v.has(name) {
		return "", nil
	}
	hosts, err := Nodes(v.get(name))
	if err != nil {
		return "", fmt.Errorf("%s=%s: %w", name, words.Clip(v.get(name), maxShown), err)
	}
	return hosts[0], nil
}
