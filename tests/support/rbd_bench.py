"""Foreign I/O on a cluster: small random writes that end when the process is killed."""


def writing(image: str) -> list[str]:
    """Arguments of ``rbd`` that write to an image, ``POOL/IMAGE``, all the while."""
    return [
        *("bench", "--io-type", "write", "--io-size", "4096"),
        *("--io-total", "100G", "--io-pattern", "rand", image),
    ]
