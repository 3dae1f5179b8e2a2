#!/usr/bin/env python3
"""One intent in ten lines. No acknowledgement printed? Run it again: same id, same wish."""
import json, os, socket

user, inbox = "acme-agent", "_INBOX_acme-agent.1"
login = json.dumps({"verbose": False, "user": user, "pass": os.environ["ACME_AGENT_PASSWORD"]})
intent = json.dumps({"operation_id": "call-ada-1", "provider": "crm", "account": "main",
                     "action": "task.create", "args": {"title": "Call Ada"}})
with socket.create_connection(("127.0.0.1", int(os.environ.get("NATS_PORT", "4222"))), 10) as nats:
    nats.sendall(f"CONNECT {login}\r\nSUB {inbox} 1\r\nPUB opledger.intents.acme {inbox} {len(intent)}\r\n{intent}\r\n".encode())
    for line in nats.makefile():
        if line.startswith(("{", "-ERR")):  # the acknowledgement, or why there is none
            print(line.strip())
            raise SystemExit(not line.startswith('{"stream"'))
raise SystemExit("no acknowledgement: the server closed the connection")
