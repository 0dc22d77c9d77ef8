# expect: subtracted twice
class Profiler:
    """Times named regions on the device; regions may be nested."""

    def __init__(self, gpu):
        self.gpu = gpu  # torch.cuda, or a practice GPU
        self.open = []  # names of the regions that we are in
        self.done = []  # (path, start event, stop event)

    @contextmanager
    def record(self, name):
        """Time the body of a with block as part of the open region."""
        self.open.append(name)
        path = "/".join(self.open)
        start = self.gpu.Event(enable_timing=True)
        stop = self.gpu.Event(enable_timing=True)
        start.record()
        try:
            yield
        finally:
            stop.record()
            self.open.pop()
            self.done.append((path, start, stop))

    def summary(self):
        """Return {path: (calls, total ms, own ms)}.

        A path such as "step/forward" names the region and its parents.
        Own time is what the regions directly inside leave of the total.
        """
        self.gpu.synchronize()
        calls, total, inner = {}, {}, {}
        for path, start, stop in self.done:
            ms = start.elapsed_time(stop)
            calls[path] = calls.get(path, 0) + 1
            total[path] = total.get(path, 0.0) + ms
            parts = path.split("/")
            for depth in range(1, len(parts)):
                parent = "/".join(parts[:depth])
                inner[parent] = inner.get(parent, 0.0) + ms
        return {
            path: (calls[path], total[path], total[path] - inner.get(path, 0))
            for path in calls
        }
