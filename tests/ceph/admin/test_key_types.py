"""The remedy of a refused connection names a key that older clients do not know."""

from pathlib import Path

import pytest

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.core.errors import ClusterError

# As monitors of 20.2.4 made them, for a cluster that is gone.
AES = "AQA0yQRrNEWSCxAAcnv1joUopIa/fVrfGQP5vQ=="
AES256K = "AgBDyQRrvtLoKCAACeNsEoYodvtk2fnAUU05pp0iio+tymHOFUOy5zcRF3M="


def remedy_of_refusal(tmp_path: Path, keyring: str) -> str:
    """Of a connection to a port on which no monitor listens."""
    pytest.importorskip("rados", reason="needs python3-rados")
    (tmp_path / "keyring").write_text(keyring)
    conf = tmp_path / "ceph.conf"
    conf.write_text(f"[global]\nmon_host = 127.0.0.1:1\nkeyring = {tmp_path}/none,{tmp_path}/keyring\n")
    with pytest.raises(ClusterError) as caught:
        RadosAdmin(conf, client_id="us", timeout_seconds=1)
    return caught.value.remedy


@pytest.mark.parametrize(
    "text",
    [
        f"[client.us]\n\tkey = {AES}\n[client.them]\n\tkey = {AES256K}\n",
        f"[client.them]\n\tkey = {AES256K}\n",
        "[client.us]\n\tkey = ???\n",
    ],
)
def test_an_older_type_or_another_users_key_is_not_blamed(text: str, tmp_path: Path) -> None:
    assert remedy_of_refusal(tmp_path, text) == (
        "check that the monitors run and the keyring has client.us of this cluster"
    )


def test_a_key_of_a_new_cluster_names_the_release_that_knows_it(tmp_path: Path) -> None:
    text = f"[client.them]\nkey={AES}\n\n[client.us]\n\tkey = {AES256K}\n\tcaps mon = allow r\n"
    remedy = remedy_of_refusal(tmp_path, text)
    assert "the key of client.us is of type aes256k, which librados before 20.2.4 does not know" in remedy
    assert "install python3-rados of the cluster's release" in remedy
