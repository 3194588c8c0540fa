"""Writes tensorboard.tfevents by TensorBoard's own messages and record writer: pip install tensorboard (2.21.0)."""
import os
import sys

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.summary.writer.record_writer import RecordWriter

text = TensorProto(dtype=7, string_val=[b"    seed: 42\n    device: cpu"])
text.tensor_shape.dim.add().size = 1
metadata = summary_pb2.SummaryMetadata(data_class=2)
metadata.plugin_data.plugin_name = "text"
events = [
    event_pb2.Event(wall_time=1700000000.25, file_version="brain.Event:2"),
    event_pb2.Event(wall_time=1700000000.25, step=301, session_log=event_pb2.SessionLog(status=1)),
    event_pb2.Event(wall_time=1700000000.25, step=300, summary=summary_pb2.Summary(
        value=[summary_pb2.Summary.Value(tag="config/text_summary", tensor=text, metadata=metadata)])),
    event_pb2.Event(wall_time=1700000001.5, step=301, summary=summary_pb2.Summary(value=[
        summary_pb2.Summary.Value(tag="train/loss", simple_value=2.5),
        summary_pb2.Summary.Value(tag="train/learning_rate", simple_value=1e-4)])),
    event_pb2.Event(wall_time=1700000002.0, step=301, summary=summary_pb2.Summary(value=[
        summary_pb2.Summary.Value(tag="eval/loss", simple_value=float("nan"))])),
]
with open(os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "tensorboard.tfevents"), "wb") as f:
    w = RecordWriter(f)
    for e in events:
        w.write(e.SerializeToString(deterministic=True))
    w.flush()
