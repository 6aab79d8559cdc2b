"""A provider of spans that keeps those that ended, and shows them as a tree."""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from eventstore.spans import Spans


class Recorder:
    """A provider of spans that keeps those that ended."""

    def __init__(self):
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.spans = Spans(self.provider)

    @property
    def ended(self):
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time)

    def tree(self):
        """Each span's name below its parent's, two blanks a level."""
        ids = {span.context.span_id: span for span in self.ended}

        def depth(span):
            parent = ids.get(span.parent.span_id) if span.parent else None
            return 0 if parent is None else 1 + depth(parent)

        return [f"{'  ' * depth(span)}{span.name}" for span in self.ended]

    def traces(self):
        return {f"{span.context.trace_id:032x}" for span in self.ended}
