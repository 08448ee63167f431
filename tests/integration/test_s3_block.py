"""The bucket block on a real Prefect server, with credentials that were saved before."""

import subprocess
import sys
from pathlib import Path

import pytest
from prefect_aws import AwsCredentials, MinIOCredentials

from blocks import S3RawBucket

ROOT = Path(__file__).parent.parent.parent
LOAD = """
import sys
from blocks.configuration import settings_with
for name in sys.argv[1:]:
    settings = settings_with([f"penstock-s3-raw-bucket/{name}"])
    print(settings.raw_store, settings.s3_access_key_id.get_secret_value())
"""


def run_python(*arguments: str) -> str:
    """What a process of its own prints: this one has imported every block."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("prefect", "home")
def test_a_bucket_with_saved_credentials_is_loaded_where_nobody_has_imported_it() -> None:
    assert "Penstock S3 Raw Bucket" in run_python(
        "-m", "prefect", "block", "register", "-m", "blocks"
    )
    MinIOCredentials(minio_root_user="minio-key", minio_root_password="secret").save("minio")
    AwsCredentials(aws_access_key_id="aws-key", aws_secret_access_key="secret").save("aws")
    for name, saved in (("minio", MinIOCredentials), ("aws", AwsCredentials)):
        block = S3RawBucket(bucket_path=f"mills/{name}", credentials=saved.load(name))
        block.save(name)

    printed = run_python("-c", LOAD, "minio", "aws")

    assert printed.split() == ["s3://mills/minio", "minio-key", "s3://mills/aws", "aws-key"]
