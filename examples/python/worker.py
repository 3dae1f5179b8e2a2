#!/usr/bin/env python3
"""Carry out actions for the ledger over plain NATS, with the standard library only.

The provider of this example is a folder: task.create makes a file in it, and the
file's name is the external id. Replace the class Folder by calls of your own
provider; all the rest is the protocol (docs/workers.md).

    export FILES_WORKER_PASSWORD=...
    ./worker.py --user files-worker --password-env FILES_WORKER_PASSWORD \\
        --provider files --account main=folder-1 --folder /tmp/files
"""

import argparse
import datetime
import json
import os
import pathlib
import signal
import socket
import ssl
import sys
import threading
import time
import urllib.parse
import uuid

QUEUE = "workers"  # a request goes to one member of the group, and to nobody again


class Folder:
    """The provider: a folder, in it one file for each object."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.path.mkdir(parents=True, exist_ok=True)

    def do(self, request):
        """Carry the action out, once, and say what came of it."""
        if request["action"] != "task.create":
            return {"outcome": "rejected", "code": "no_such_action"}
        name = "task-%s.json" % uuid.uuid4().hex  # a repeat would make a second file
        content = {"label": request["label"], "title": request["args"]["title"]}
        with open(self.path / (name + ".part"), "x", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(self.path / (name + ".part"), self.path / name)
        return {"outcome": "success", "external_id": name, "result": content}

    def lookup(self, request):
        """Find the objects that carry the operation's mark. Change nothing."""
        objects = []
        for path in sorted(self.path.glob("task-*.json")):
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["label"] == request["label"]:
                made = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.timezone.utc)
                objects.append({"external_id": path.name, "mark": content["label"],
                                "created_at": made.isoformat(), "result": content})
        return {"objects": objects, "complete": True}


class Refused(Exception):
    """The server says no, and will say no again."""


class Connection:
    """One connection to a NATS server."""

    def __init__(self, server, user, password):
        url = urllib.parse.urlsplit(server if "//" in server else "nats://" + server)
        self.sock = socket.create_connection((url.hostname, url.port or 4222), 10)
        self.lock = threading.Lock()  # answers come from several threads
        # The greeting comes before TLS, so no byte beyond it may be read ahead.
        line = b""
        while not line.endswith(b"\r\n"):
            byte = self.sock.recv(1)
            if not byte:
                raise ConnectionError("the server closed the connection")
            line += byte
        if json.loads(line.removeprefix(b"INFO ")).get("tls_required"):
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=url.hostname)
        self.sock.settimeout(None)
        self.reader = self.sock.makefile("rb")
        self.send(b"CONNECT " + json.dumps({
            "verbose": False, "pedantic": False, "headers": True, "lang": "python-stdlib", "version": "1",
            "name": "opledger worker.py", "user": user, "pass": password}).encode() + b"\r\n")

    def send(self, data):
        with self.lock:
            self.sock.sendall(data)

    def publish(self, subject, message):
        body = json.dumps(message).encode()
        self.send(b"PUB %s %d\r\n%s\r\n" % (subject.encode(), len(body), body))

    def messages(self):
        """Yield (reply, body) of every message, and None for every PONG."""
        for line in self.reader:
            word, *args = line.split()
            if word == b"PING":
                self.send(b"PONG\r\n")
            elif word == b"PONG":
                yield None
            elif word == b"-ERR":
                text = line.decode("utf-8", "replace").strip()
                if "authorization" in text.lower() or "subscription" in text.lower():
                    raise Refused(text)
                print("worker.py: %s" % text, file=sys.stderr, flush=True)
            elif word in (b"MSG", b"HMSG"):
                size = int(args[-1])
                body = self.reader.read(size + 2)[:size]
                headers = int(args[-2]) if word == b"HMSG" else 0
                if len(args) > (4 if headers else 3):  # a request has a reply subject
                    yield args[2].decode(), body[headers:]
        raise ConnectionError("the server closed the connection")


class Worker:
    """Answers what the ledger asks, one thread for each request."""

    def __init__(self, args, password, provider):
        self.args, self.password, self.provider = args, password, provider
        self.accounts = dict(pair.split("=", 1) for pair in args.account)
        self.slots = threading.Semaphore(args.threads)
        self.threads = set()
        self.stopping = False
        self.connection = None

    def run(self):
        """Work until stop, through lost connections."""
        while not self.stopping:
            try:
                self.connection = Connection(self.args.server, self.args.user, self.password)
                self.serve(self.connection)
            except (OSError, ValueError) as error:
                print("worker.py: %s" % error, file=sys.stderr, flush=True)
                if not self.stopping:
                    time.sleep(1)
        # What is in hand is finished and answered; what takes too long is left
        # to the ledger's lookups.
        for thread in list(self.threads):
            thread.join(self.args.drain)

    def serve(self, connection):
        subject = "%s.work.%s.>" % (self.args.prefix, self.args.provider)
        connection.send(b"SUB %s %s 1\r\nPING\r\n" % (subject.encode(), QUEUE.encode()))
        pongs = 0
        for message in connection.messages():
            if message is None:
                pongs += 1
                if pongs > 1:
                    return  # behind the UNSUB: nothing more will come
                say({"ready": subject, "pid": os.getpid()})
                continue
            # Read on at once, so that nothing waits in the socket.
            thread = threading.Thread(target=self.handle, args=(connection, *message))
            self.threads = {t for t in self.threads if t.is_alive()} | {thread}
            thread.start()

    def stop(self, *_):
        """Take nothing more in. A signal may come while a lock is held, so a thread does it."""
        self.stopping = True
        threading.Thread(target=self.leave, daemon=True).start()

    def leave(self):
        try:
            if self.connection is not None:
                self.connection.send(b"UNSUB 1\r\nPING\r\n")  # the PONG tells when that is so
        except OSError:
            pass  # there is no connection any more

    def handle(self, connection, reply, body):
        done = threading.Event()
        try:
            message = json.loads(body)
            threading.Thread(target=self.heartbeat, args=(connection, reply, done), daemon=True).start()
            try:
                answer = self.answer(message)
            except Exception as error:  # nobody knows how far it got
                print("worker.py: %r" % error, file=sys.stderr, flush=True)
                answer = {"outcome": "uncertain", "failed": "worker_error"}
            answer["attempt_id"] = message.get("attempt_id", "")
            if message["verb"] == "do" and self.args.linger:
                time.sleep(self.args.linger)
            done.set()
            connection.publish(reply, answer)
            say({"verb": message["verb"], "answer": answer})
        except Exception as error:  # no answer: the ledger takes it as unknown
            print("worker.py: %r" % error, file=sys.stderr, flush=True)
        finally:
            done.set()

    def heartbeat(self, connection, reply, done):
        while not done.wait(1):
            try:
                connection.publish(reply, {"heartbeat": True})
            except OSError:
                return

    def answer(self, message):
        request, verb = message["request"], message["verb"]
        # Our own credential says which account it is, never the request.
        account = self.accounts.get(request["account"])
        if account is None:
            return {"outcome": "not_applied", "code": "no_credential", "failed": "no_credential"}
        if verb == "probe":
            return {"account_id": account}
        if verb == "lookup":
            return {"account_id": account, **self.provider.lookup(request)}
        if verb != "do":
            return {"failed": "no_such_verb"}
        if request["account_id"] != account:
            return {"outcome": "not_applied", "code": "another_account"}
        if not self.slots.acquire(blocking=False):
            return {"outcome": "not_applied", "code": "no_free_slot", "retry_after_ms": 1000}
        try:
            if past(message["not_after"]):  # it waited too long on its way
                return {"outcome": "not_applied", "code": "too_late"}
            return {"account_id": account, **self.provider.do(request)}
        finally:
            self.slots.release()


def say(line):
    """Write one line at once: print writes the end of a line by itself, perhaps behind another thread's."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def past(text):
    """Compare with the ledger's time; fractions beyond microseconds are cut."""
    head, _, fraction = text.removesuffix("Z").partition(".")
    at = datetime.datetime.fromisoformat(head).replace(tzinfo=datetime.timezone.utc)
    at += datetime.timedelta(seconds=float("0." + (fraction or "0")))
    return datetime.datetime.now(datetime.timezone.utc) > at


def main():
    parser = argparse.ArgumentParser(description="Carry out actions for the ledger over plain NATS.")
    parser.add_argument("--server", default="nats://127.0.0.1:4222")
    parser.add_argument("--user", required=True, help="user on the server, a worker of the provider")
    parser.add_argument("--password-env", default="OPLEDGER_PASSWORD", help="environment variable with the password")
    parser.add_argument("--prefix", default="opledger", help="first token of the subjects")
    parser.add_argument("--provider", required=True)
    parser.add_argument("--account", action="append", required=True, metavar="NAME=ID",
                        help="account as the ledger calls it, and the provider's own id of it")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--threads", type=int, default=8, help="requests that are carried out at once")
    parser.add_argument("--drain", type=float, default=30, help="seconds for each request in hand at the end")
    parser.add_argument("--linger", type=float, default=0, help="seconds between doing and answering, to try out lost answers")
    args = parser.parse_args()
    worker = Worker(args, os.environ.get(args.password_env, ""), Folder(args.folder))
    signal.signal(signal.SIGTERM, worker.stop)
    signal.signal(signal.SIGINT, worker.stop)
    try:
        worker.run()
    except Refused as error:
        print("worker.py: %s" % error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
