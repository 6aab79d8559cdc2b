"""The Connect client over TLS, with a listener and a certificate of our own making."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cdc import ConnectClient
from cdc.errors import ConnectUnavailable

HOST = "localhost"


class Worker(BaseHTTPRequestHandler):
    """A worker without connectors, for those who say who they are."""

    def do_GET(self) -> None:
        known = self.headers.get("Authorization") == "Basic YW5uOnNlY3JldA=="
        body = b"[]" if known else b'{"message": "HTTP 401 Unauthorized"}'
        self.send_response(200 if known else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of our host, signed by itself, and its key behind it."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "worker.pem"
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    file.write_bytes(made.public_bytes(pem) + secret)
    return file


@pytest.fixture(scope="module")
def port(certificate: Path) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with HTTPServer(("127.0.0.1", 0), Worker) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_worker_whose_authority_is_known_answers_those_it_knows(port: int, certificate: Path) -> None:
    with ConnectClient(f"https://ann:secret@{HOST}:{port}", verify=str(certificate)) as client:
        assert client.connectors() == ()


@pytest.mark.parametrize(
    ("host", "trusted", "reason"), [(HOST, False, "self-signed certificate"), ("127.0.0.1", True, "not valid for")]
)
def test_a_certificate_that_is_not_trusted_is_said_at_once(port, certificate, host, trusted, reason):
    began, verify = time.monotonic(), str(certificate) if trusted else True
    with ConnectClient(f"https://{host}:{port}", verify=verify, patience=60.0) as client:
        for ask in (client.connectors, client.health):
            with pytest.raises(ConnectUnavailable, match=reason) as refused:
                ask()
            assert "verify=" in refused.value.remedy
    assert time.monotonic() - began < client.patience


def test_tls_towards_a_worker_without_it_is_said_to_be_that(certificate: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), Worker) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with (
            ConnectClient(f"https://{HOST}:{server.server_address[1]}", verify=str(certificate)) as client,
            pytest.raises(ConnectUnavailable, match="no TLS"),
        ):
            client.connectors()
        thread.join()
