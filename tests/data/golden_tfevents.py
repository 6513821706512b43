"""Writes golden-tfevents.bin: an event file made with TensorBoard's own protocol buffers and record format.

pip install tensorboard; python3 tests/data/golden_tfevents.py
"""
import os

from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2
from tensorboard.summary.writer.record_writer import RecordWriter


def event(time, step=0, **fields):
    return event_pb2.Event(wall_time=time, step=step, **fields)


def summary(**value):
    return summary_pb2.Summary(value=[summary_pb2.Summary.Value(**value)])


histogram = summary_pb2.HistogramProto(
    min=-1.5, max=2.0, num=7, sum=1.25, sum_squares=9.5, bucket_limit=[-1.0, 0.0, 0.5, 1.7976931348623157e308], bucket=[1, 2, 3, 1]
)
text = tensor_pb2.TensorProto(
    dtype=7,
    tensor_shape=tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)]),
    string_val=["```\n{\"seq\": \"32\"}\n```".encode()],
)
meta = summary_pb2.SummaryMetadata(plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text"))
events = [
    event(1700000000.25, file_version="brain.Event:2"),
    event(1700000001.5, 3, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START)),
    event(1700000002.0, 3, summary=summary(tag="train/loss", simple_value=2.375)),
    event(1700000003.0, 300, summary=summary(tag="weights/0", histo=histogram)),
    event(1700000004.0, 70000, summary=summary(tag="run", tensor=text, metadata=meta)),
]
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden-tfevents.bin")
with open(path, "wb") as f:
    writer = RecordWriter(f)
    for e in events:
        writer.write(e.SerializeToString())
    writer.flush()
# SPDX-License-Identifier: Apache-2.0
