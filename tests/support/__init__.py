"""What tests share.

How a test chooses its event loop and its clock
------------------------------------------------
An async test carries `@pytest.mark.anyio` (or its module sets `pytestmark = pytest.mark.anyio`) and so runs twice, on
asyncio and on trio.

* **Virtual time is the default.** When every task waits, the clock jumps to the next deadline: an hour takes no time.
  A worker thread does not hold that clock: while it works, deadlines fly past. Use memory adapters only.
* **Real time** is for adapters that use threads, processes, sockets or a real database: mark the test or module
  `pytest.mark.real_time`, or let it use the fixture `real_time_backend`. It then runs twice too, on real clocks: never
  sleep there, wait for something to happen.
* One loop only: `@pytest.mark.asyncio_only`, with a reason, for parts that exist on one loop by design (aiosqlite).

`conftest.py` scrubs the environment when it is imported (credentials, CONVEYOR_*, XDG_*, Hugging Face homes) and
refuses every connection that does not stay on this machine.

`virtual_time` makes the backends, `actor_probe` is an actor that a test plays by hand, and `cancel_points` cancels an
operation at each place where it can be cancelled.
"""
