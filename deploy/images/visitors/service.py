"""A substitute for jdob/visitors-service:1.0.0: its REST API, with the visits in MySQL."""

import json
import os
import socket
import time
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pymysql

TABLE = """CREATE TABLE IF NOT EXISTS visitors_visit (
  id BIGINT AUTO_INCREMENT PRIMARY KEY, client_ip VARCHAR(64), service_ip VARCHAR(64), timestamp VARCHAR(32))"""
FIELDS = ("id", "client_ip", "service_ip", "timestamp")


def database():
    return pymysql.connect(
        host=os.environ.get("MYSQL_SERVICE_HOST", "mysql"),
        port=int(os.environ.get("MYSQL_SERVICE_PORT", "3306")),
        user=os.environ.get("MYSQL_USERNAME", "visitors"),
        password=os.environ.get("MYSQL_PASSWORD", "visitors"),
        database=os.environ["MYSQL_DATABASE"],
        autocommit=True,
    )


def query(sql, values=()):
    with database() as connection, connection.cursor() as cursor:
        cursor.execute(sql, values)
        return [dict(zip(FIELDS, row)) for row in cursor.fetchall()] if cursor.description else cursor.lastrowid


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(lambda: query(f"SELECT {', '.join(FIELDS)} FROM visitors_visit ORDER BY id DESC LIMIT 10"))

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", "0")))
        self.answer(self.visit)

    def visit(self):
        forwarded = self.headers.get("x-forwarded-for", "").split(",")[0].strip()
        client = forwarded or self.client_address[0]
        service = socket.gethostbyname(socket.gethostname())
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        values = (client, service, now)
        number = query("INSERT INTO visitors_visit (client_ip, service_ip, timestamp) VALUES (%s, %s, %s)", values)
        return dict(zip(FIELDS, (number, *values)))

    def answer(self, make):
        if self.path != "/visitors/":
            return self.reply(404, {"detail": "Not found."})
        try:
            self.reply(200, make())
        except pymysql.Error as error:
            self.reply(500, {"detail": str(error)})

    def reply(self, code, content):
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.send_header("access-control-allow-origin", "*")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


while True:
    print("Migrating Database...", flush=True)
    try:
        query(TABLE)
        break
    except pymysql.Error as error:
        print(error, flush=True)
        time.sleep(3)
print("Migration Complete", flush=True)
ThreadingHTTPServer(("0.0.0.0", 8000), Handler).serve_forever()
