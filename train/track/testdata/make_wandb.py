"""Writes run.wandb by the wandb package's own messages and data store, and prints the SHA-256 of a file of long records:
pip install wandb==0.22.3, the last series with the data store in Python."""
import hashlib
import os
import sys
import tempfile

from wandb.proto import wandb_internal_pb2 as pb
from wandb.sdk.internal.datastore import DataStore

began = 1700000000.25


def row(record, values, runtime, step):
    items = [(k, v) for k, v in values] + [("_timestamp", f"{began + runtime:.12g}"), ("_runtime", repr(runtime))]
    if isinstance(record, pb.HistoryRecord):
        items.append(("train/global_step", str(step)))
        record.step.num = step
    for key, value in items + [("_step", str(step))]:
        (record.item if isinstance(record, pb.HistoryRecord) else record.update).add(nested_key=[key], value_json=value)
    return record


run = pb.RunRecord(run_id="abc12345", entity="team", project="bots", run_group="g", job_type="sft", display_name="first",
                   notes="a note", tags=["team:nlp", "x y"], starting_step=300, resumed=True)
run.start_time.seconds, run.start_time.nanos = 1700000000, 250000000
for key, value in [("seed", "42"), ("device", '"cpu"'), ("training.bf16", "true"), ("training.learning_rate", "0.0001")]:
    run.config.update.add(key=key, value_json=value)
values = [("train/loss", "2.5"), ("train/learning_rate", "0.0001"), ("eval/loss", "NaN")]
end = [("train/train_loss", "2.25")]
records = [
    pb.Record(header=pb.HeaderRecord(version_info=pb.VersionInfo(producer="tierlora", min_consumer="0.40.0"))),
    pb.Record(run=run),
    pb.Record(history=row(pb.HistoryRecord(), values, 1.75, 301)),
    pb.Record(summary=row(pb.SummaryRecord(), values, 1.75, 301)),
    pb.Record(summary=row(pb.SummaryRecord(), end, 2.5, 301)),
    pb.Record(exit=pb.RunExitRecord(exit_code=255, runtime=2)),
]


def write(path, records):
    store = DataStore()
    store.open_for_write(path)
    for r in records:
        store._write_data(r)
    store.close()


for i, r in enumerate(records):
    r.num = i + 1
target = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "run.wandb")
if os.path.exists(target):
    os.remove(target)
write(target, [r.SerializeToString(deterministic=True) for r in records])
# Ends of frames 0 to 8 bytes before a block's end, records of several blocks, an empty one.
sizes = [32768 - 7 - 7 - 7 - left for left in range(9)] + [100000, 0, 65522, 1, 32761, 3 * 32761]
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "long")
    long = []
    for i, n in enumerate(sizes):
        long += [bytes((i + j) % 251 for j in range(n)), b""]
    write(path, long)
    print(hashlib.sha256(open(path, "rb").read()).hexdigest(), os.path.getsize(path))
