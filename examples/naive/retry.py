#!/usr/bin/env python3
"""What most programs do: send, and on any error send again. The wrong way, on purpose.

    opledger sim --preset crm --listen 127.0.0.1:8099
    curl -d '{"do":"lose_response","nth":1,"method":"POST"}' http://127.0.0.1:8099/_sim/rules
    ./retry.py http://127.0.0.1:8099 "Call Ada"
    curl http://127.0.0.1:8099/_sim/sends

The provider makes the task, the answer is lost, the loop takes the silence for a
failure. It prints one id; the provider has two tasks.
"""
import json
import sys
import time
import urllib.error
import urllib.request

TRIES = 3


def create(base, title):
    """Return the id of the new task, or the last error."""
    body = json.dumps({"title": title, "label": "wish-1"}).encode()
    for attempt in range(1, TRIES + 1):
        request = urllib.request.Request(base + "/v1/tasks", body, {
            "Authorization": "Bearer sim-token", "Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return json.load(answer)["id"]
        except (OSError, ValueError) as error:  # no connection, a timeout, a cut, a 5xx
            print(f"attempt {attempt}: {error}", file=sys.stderr)
            if attempt == TRIES:
                raise SystemExit("given up; nobody knows how many tasks there are")
            time.sleep(0.01 * attempt)


if __name__ == "__main__":
    print("created task", create(sys.argv[1], sys.argv[2]))
