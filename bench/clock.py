"""Runs commands in turns and measures how long each process took, without the costs of the harness itself.

Reads {"runs", "commands": {name: argv}, "env"} on stdin; `{run}` in a word or a variable becomes the number
of the run. Writes {name: [seconds]}.
"""

import json
import os
import subprocess
import sys
import time


def main():
    plan = json.load(sys.stdin)
    seconds = {name: [] for name in plan["commands"]}
    for run in range(plan["runs"]):
        env = {**os.environ, **{name: value.replace("{run}", str(run)) for name, value in plan["env"].items()}}
        for name, argv in plan["commands"].items():
            words = [word.replace("{run}", str(run)) for word in argv]
            begin = time.perf_counter()
            done = subprocess.run(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE)
            seconds[name].append(time.perf_counter() - begin)
            if done.returncode:
                raise SystemExit(f"{words}: exit {done.returncode}: {done.stderr.decode(errors='replace')}")
    json.dump(seconds, sys.stdout)


if __name__ == "__main__":
    main()
