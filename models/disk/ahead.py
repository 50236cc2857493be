"""Reading ahead: an iterator that runs in a thread of its own, a few items before they are asked for."""

import queue
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

_READY = 2  # items that wait
_END = object()


class read_ahead:
    """Run an iterator in a thread of its own, a few items ahead; its errors are raised here."""

    def __init__(self, items: Iterator[Any]) -> None:
        self.items, self.ready = items, queue.Queue(_READY)
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Iterator[Any]:
        self.thread.start()
        return iter(partial(self._next), _END)

    def __exit__(self, *_: Any) -> None:
        self.stopped.set()
        self.thread.join()

    def _next(self) -> Any:
        item = self.ready.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def _read(self) -> None:
        try:
            for item in self.items:
                self._put(item)
                if self.stopped.is_set():
                    return
            self._put(_END)
        except BaseException as error:
            self._put(error)

    def _put(self, item: Any) -> None:
        while not self.stopped.is_set():
            try:
                return self.ready.put(item, timeout=0.1)
            except queue.Full:
                pass
