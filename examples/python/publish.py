#!/usr/bin/env python3
"""Hand intents to the ledger over plain NATS, with the standard library only.

Each intent is published into the durable inbox of a tenant and published again,
with the same operation id, until the server's acknowledgement is in hand. That
is safe: the ledger recognises the id and does not act twice. One JSON line is
printed for each acknowledged intent. The acknowledgement means that the intent
will be read; what becomes of it is the ledger's answer (see README.md).

    export ACME_AGENT_PASSWORD=...
    ./publish.py --user acme-agent --password-env ACME_AGENT_PASSWORD \
        --tenant acme --provider crm --account main --action task.create \
        --prefix-id call-list-7 --count 3 --title "Call Ada"
"""

import argparse
import json
import os
import re
import socket
import ssl
import sys
import time
import urllib.parse
import uuid


class Refused(Exception):
    """The server says no, and will say no again."""


class Connection:
    """One connection to a NATS server, with one inbox for answers."""

    def __init__(self, server, user, password, timeout):
        url = urllib.parse.urlsplit(server if "//" in server else "nats://" + server)
        self.sock = socket.create_connection((url.hostname, url.port or 4222), timeout)
        try:
            self._hello(url.hostname, user, password)
        except BaseException:
            self.close()
            raise

    def _hello(self, host, user, password):
        # The greeting comes before TLS, so no byte beyond it may be read ahead.
        line = b""
        while not line.endswith(b"\r\n"):
            byte = self.sock.recv(1)
            if not byte:
                raise ConnectionError("the server closed the connection")
            line += byte
        info = json.loads(line.removeprefix(b"INFO "))
        self.max_payload = info.get("max_payload", 1 << 20)
        if info.get("tls_required"):
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=host)
        self.reader = self.sock.makefile("rb")
        # A user may only listen below its own inbox prefix.
        self.inbox = "_INBOX_%s.%s" % (user or "anonymous", uuid.uuid4().hex)
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True,
                   "lang": "python-stdlib", "version": "1", "name": "opledger publish.py"}
        if user:
            options.update(user=user, **{"pass": password})
        self._send(b"CONNECT " + json.dumps(options).encode() + b"\r\nSUB " + self.inbox.encode() + b".* 1\r\nPING\r\n")
        while self._read() != ("PONG",):
            pass

    def _send(self, data):
        self.sock.sendall(data)

    def _read(self):
        """Read one protocol message: ("PONG",), ("MSG", subject, status, body) or another word."""
        line = self.reader.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        word, *args = line.split()
        word = word.upper()
        if word == b"PING":
            self._send(b"PONG\r\n")
        elif word == b"-ERR":
            text = line[5:].strip().decode("utf-8", "replace").strip("'")
            if re.search("authorization|permissions|authentication|maximum payload|invalid", text, re.IGNORECASE):
                raise Refused(text)
            raise ConnectionError(text)
        elif word in (b"MSG", b"HMSG"):
            size = int(args[-1])
            data = self._exactly(size + 2)[:size]
            status = ""
            if word == b"HMSG":
                headers, data = data[: int(args[-2])], data[int(args[-2]):]
                status = headers.split(b"\r\n", 1)[0].removeprefix(b"NATS/1.0").strip().decode()
            return ("MSG", args[0].decode(), status, data)
        return (word.decode(),)

    def _exactly(self, size):
        data = self.reader.read(size)
        if data is None or len(data) != size:
            raise ConnectionError("the server closed the connection")
        return data

    def publish(self, subject, body, timeout):
        """Publish and return the server's acknowledgement."""
        if len(body) > self.max_payload:
            raise Refused("the intent has %d bytes, the server takes %d" % (len(body), self.max_payload))
        reply = "%s.%s" % (self.inbox, uuid.uuid4().hex)
        # A late acknowledgement of an earlier try has another reply subject.
        self._send(b"PUB %s %s %d\r\n" % (subject.encode(), reply.encode(), len(body)) + body + b"\r\n")
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("no acknowledgement in time")
            self.sock.settimeout(left)
            message = self._read()
            if message[0] != "MSG" or message[1] != reply:
                continue
            if message[2].startswith("503"):
                raise ConnectionError("nothing takes messages on " + subject)
            ack = json.loads(message[3])
            if "error" in ack:
                raise ConnectionError("not stored: %s" % ack["error"].get("description", ack["error"]))
            return ack

    def close(self):
        self.sock.close()


def hand_in(args, password, connection, intent):
    """Publish one intent until it is acknowledged. Returns (connection, ack, tries)."""
    subject = "%s.intents.%s" % (args.prefix, args.tenant)
    body = json.dumps(intent, separators=(",", ":")).encode()
    give_up = time.monotonic() + args.give_up
    tries, pause, last = 0, 0.1, None
    while time.monotonic() < give_up:
        tries += 1
        try:
            if connection is None:
                connection = Connection(args.server, args.user, password, args.timeout)
            return connection, connection.publish(subject, body, args.timeout), tries
        except (OSError, ValueError) as error:  # also lost connections and timeouts
            last = error
            if connection is not None:
                connection.close()
                connection = None
            time.sleep(pause)
            pause = min(2 * pause, 2.0)
    raise Refused("gave up after %d tries: %s" % (tries, last))


def main():
    parser = argparse.ArgumentParser(description="Hand intents to the ledger over plain NATS.")
    parser.add_argument("--server", default="nats://127.0.0.1:4222")
    parser.add_argument("--user", default="", help="user on the server")
    parser.add_argument("--password-env", default="OPLEDGER_PASSWORD", help="environment variable with the password")
    parser.add_argument("--prefix", default="opledger", help="first token of the subjects")
    parser.add_argument("--tenant", required=True)
    parser.add_argument("--provider", required=True)
    parser.add_argument("--account", required=True)
    parser.add_argument("--action", required=True)
    parser.add_argument("--title", default="Call Ada", help="the argument title; the number is added if there are several")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--prefix-id", default="", help="operation ids are PREFIX-1, PREFIX-2, …; without it they are random")
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds to wait for one acknowledgement")
    parser.add_argument("--give-up", type=float, default=600.0, help="seconds to keep at one intent")
    args = parser.parse_args()

    connection = None
    try:
        for n in range(1, args.count + 1):
            # The id belongs to the wish: made once, before the first try, and
            # kept by the application. A new id would be a new wish.
            intent = {
                "operation_id": "%s-%d" % (args.prefix_id, n) if args.prefix_id else str(uuid.uuid4()),
                "provider": args.provider,
                "account": args.account,
                "action": args.action,
                "args": {"title": args.title if args.count == 1 else "%s %d" % (args.title, n)},
            }
            connection, ack, tries = hand_in(args, os.environ.get(args.password_env, ""), connection, intent)
            print(json.dumps({"operation_id": intent["operation_id"], "stream": ack["stream"],
                              "seq": ack["seq"], "tries": tries}), flush=True)
    except Refused as error:
        print("publish.py: %s" % error, file=sys.stderr)
        return 1
    finally:
        if connection is not None:
            connection.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
