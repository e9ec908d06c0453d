"""Hosts that payloads come from: one that speaks HTTPS, good or hostile, and one that speaks S3."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

#: What a server does with a connection once it has read the request.
Behaviour = Callable[[ssl.SSLSocket, threading.Event], None]


@dataclass
class Authority:
    """A certificate authority of the test's own, and a certificate it has signed."""

    ca_file: Path
    context: ssl.SSLContext


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: str, key: ec.EllipticCurvePrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=2))
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def authority(folder: Path, *names: str) -> Authority:
    """Make an authority and a server's certificate for these names."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    ca = (
        _certificate("test CA", ca_key, "test CA", ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
    alternatives.append(x509.IPAddress(ip_address("127.0.0.1")))
    leaf = (
        _certificate(names[0], key, "test CA", ca_key)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    ca_file, cert_file = folder / "ca.pem", folder / "server.pem"
    ca_file.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    cert_file.write_bytes(
        leaf.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert_file)
    return Authority(ca_file, context)


def response(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """Write a response."""
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(head).encode() + body


@dataclass
class HttpsServer:
    """A server on 127.0.0.1; what each path does is a behaviour, or the bytes of a response."""

    port: int
    paths: dict[str, bytes | Behaviour] = field(default_factory=dict)
    #: Path and headers of each request.
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def uri(self, path: str, host: str = "payloads.test") -> str:
        return f"https://{host}:{self.port}{path}"


@contextmanager
def https_server(context: ssl.SSLContext) -> Iterator[HttpsServer]:
    """Serve until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    server, stop = HttpsServer(listener.getsockname()[1]), threading.Event()
    threads: list[threading.Thread] = []

    def serve(plain: socket.socket) -> None:
        try:
            with context.wrap_socket(plain, server_side=True) as link:
                link.settimeout(20)
                request = b""
                while b"\r\n\r\n" not in request:
                    piece = link.recv(4096)
                    if not piece:
                        return
                    request += piece
                lines = request.decode("latin-1").split("\r\n")
                path = lines[0].split(" ")[1]
                headers = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
                server.requests.append((path, headers))
                does = server.paths[path]
                if isinstance(does, bytes):
                    link.sendall(does)
                else:
                    does(link, stop)
        except OSError:
            pass  # The client has gone, as it should from some.

    def accept() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=serve, args=(plain,), daemon=True))
            threads[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield server
    finally:
        stop.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in [accepting, *threads]:
            thread.join(60)
