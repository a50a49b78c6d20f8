"""One line for each check, the count at the end, an exit code that says whether all passed."""

import asyncio
import inspect
import sys

LIMIT_S = 30
_passed = 0
_failed = 0


async def check(name, work, limit=LIMIT_S):
    """Runs one check, a function that may be asynchronous; a failure is printed and counted, and the next check runs all the same."""
    global _passed, _failed
    try:
        note = work()
        if inspect.isawaitable(note):
            note = await asyncio.wait_for(note, limit)
        _passed += 1
        print(f"ok    {name}" + (f": {note}" if isinstance(note, str) else ""), flush=True)
    except asyncio.TimeoutError:
        _failed += 1
        print(f"FAIL  {name}: not done after {limit} s", flush=True)
    except Exception as error:  # pylint: disable=broad-except
        _failed += 1
        text = " | ".join(str(error).splitlines()[:6])
        print(f"FAIL  {name}: {type(error).__name__} {text}", flush=True)


async def refused(work, kind, text=""):
    """Checks that `work` is refused with exactly this class of error, and that its text holds `text`."""
    try:
        result = work()
        if inspect.isawaitable(result):
            await result
    except Exception as error:  # pylint: disable=broad-except
        assert type(error) is kind, f"{type(error).__name__}: {error}"
        assert text in str(error), f"{error} does not hold {text!r}"
        return error
    raise AssertionError(f"not refused; {kind.__name__} was expected")


def finish():
    """Prints the closing line and ends the process."""
    print(f"{_passed} passed, {_failed} failed", flush=True)
    sys.exit(0 if _failed == 0 else 1)
