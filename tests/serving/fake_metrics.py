"""A fake of Ray's side of the metrics: it keeps every value that they are given."""

from collections import defaultdict


class FakeMetrics:
    """By exported name and tag values, the values given, in order."""

    def __init__(self, monkeypatch):
        self.values = defaultdict(list)
        monkeypatch.setattr("corag_ray.serving.metrics.made", lambda metric: _Made(metric, self.values))
        monkeypatch.setattr("corag_ray.serving.metrics._keep_up", lambda: None)
        monkeypatch.setattr("corag_ray.serving.metrics._kept_up", {})

    def of(self, metric, *tags):
        return self.values[metric.exported, tags]

    def by_tags(self, metric):
        return {tags: values for (name, tags), values in self.values.items() if name == metric.exported}


class _Made:
    def __init__(self, metric, values):
        self.metric, self.values = metric, values

    def note(self, value, tags):
        self.values[self.metric.exported, tuple(tags[key] for key in self.metric.tags)].append(value)

    inc = set = observe = note
