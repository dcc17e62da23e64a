"""Encrypted inference over HTTP, on this computer: a server with the model, a client with the secret key.

    python examples/encrypted_http.py

The server process knows the weights and sees ciphertexts alone; the client knows the layout of the circuit. Uses
TenSEAL, cryptography and scikit-learn (extras he and sklearn).
"""

import sys
import tempfile
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing import Pipe, Process
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import mlpoly as mp


def serve(ready) -> None:
    """Train a network, and answer GET /layout, POST /keys and POST /question until the process ends."""
    x, y = load_digits(return_X_y=True)
    x = x / 16
    model = MLPClassifier((24,), max_iter=300, random_state=0).fit(x[:1500], y[:1500])
    net = mp.from_sklearn(model)
    circuit = mp.fit(net, mp.Gaussian.from_samples(x[:1500], shrinkage=0.01), degree=2).to_he(samples=x[:1500])
    folder = Path(tempfile.mkdtemp())
    mp.he.layout(circuit, x.min(axis=0), x.max(axis=0)).save(folder / "layout")

    class Handler(BaseHTTPRequestHandler):
        session = None

        def do_GET(self) -> None:
            self.answer((folder / "layout").read_bytes())

        def do_POST(self) -> None:
            (folder / "body").write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/keys":
                Handler.session = mp.he.load_session(circuit, folder / "body")
                return self.answer(b"")
            session = Handler.session
            session.evaluate(session.load(folder / "body")).save(folder / "answer")
            self.answer((folder / "answer").read_bytes())

        def answer(self, body: bytes) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Nothing is logged."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    ready.send(server.server_port)
    server.serve_forever()


def main() -> None:
    """Start the server, ask it about ten digits, and print the answers."""
    ready, end = Pipe()
    process = Process(target=serve, args=(end,), daemon=True)
    process.start()
    address, folder = f"http://127.0.0.1:{ready.recv()}", Path(tempfile.mkdtemp())

    def request(path: str, body: Path | None = None) -> Path:
        data = None if body is None else body.read_bytes()
        (folder / "reply").write_bytes(urllib.request.urlopen(address + path, data).read())
        return folder / "reply"

    client = mp.he.client(mp.he.load_layout(request("/layout")))
    client.save_keys(folder / "keys")
    client.save_secret(folder / "secret", "a passphrase")
    request("/keys", folder / "keys")

    x, y = load_digits(return_X_y=True)
    client.encrypt(x[1500:1510] / 16).save(folder / "question")
    answer = request("/question", folder / "question")
    sizes = [f"{(folder / name).stat().st_size / 1e6:.1f} MB" for name in ("keys", "question", "reply")]
    again = mp.he.load_client(client.layout, folder / "secret", "a passphrase")  # as after a restart
    logits = again.decrypt(again.load(answer))
    print("keys, question, answer:", ", ".join(sizes))
    print("encrypted:", np.argmax(logits, axis=1), " labels:", y[1500:1510])
    process.terminate()


if __name__ == "__main__":
    sys.exit(main())
