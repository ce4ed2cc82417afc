"""Keys and certificates of a federation: an authority, the server's certificate, and a key per site."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class Pair:
    """A private key and its certificate, PEM."""

    key: bytes
    certificate: bytes


@dataclass(frozen=True)
class NodeKey:
    """What a site proves who it is with, in the form of OpenSSH."""

    private: bytes
    public: bytes


def node_key() -> NodeKey:
    """A new key on P-384."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return NodeKey(private, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n")


def authority(name: str, days: int) -> Pair:
    """A certificate authority of its own for one federation."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(f"{name} authority")
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    built = _begun(subject, subject, key.public_key(), days).add_extension(x509.BasicConstraints(True, 0), True)
    return Pair(_pem(key), built.add_extension(usage, True).sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))


def server_certificate(issuer: Pair, hosts: list[str], days: int) -> Pair:
    """A certificate for a server that sites reach under these names or addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = x509.load_pem_x509_certificate(issuer.certificate)
    names = x509.SubjectAlternativeName([_host(host) for host in dict.fromkeys([*hosts, "localhost", "127.0.0.1"])])
    built = _begun(_name(hosts[0]), signer.subject, key.public_key(), days)
    built = built.add_extension(x509.BasicConstraints(False, None), True).add_extension(names, False)
    built = built.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
    signed = built.sign(_private(issuer.key), hashes.SHA256())
    return Pair(_pem(key), signed.public_bytes(Encoding.PEM))


def expiry(certificate: bytes) -> datetime.datetime:
    """When a certificate ends."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    built = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    built = built.serial_number(x509.random_serial_number())
    begin = now + datetime.timedelta(days=min(0, days)) - datetime.timedelta(days=1)
    return built.not_valid_before(begin).not_valid_after(now + datetime.timedelta(days=days))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(pem: bytes) -> ec.EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
