"""Raw bytes in a bucket. Apart from the other blocks, because it imports all of prefect-aws."""

from typing import Any

from prefect_aws.credentials import AwsCredentials, MinIOCredentials
from pydantic import Field, SecretStr

from blocks.part import ConfigurationPart
from penstock.crawl.rawstore import S3RawStore, open_s3_raw_store
from penstock.crawl.s3 import S3Access, build_s3_client
from penstock.errors import ConfigurationError

_ADVICE = {
    "assume_role_arn": "name the role in a profile of ~/.aws/config and set AWS_PROFILE",
    "profile_name": "set AWS_PROFILE where the workers run",
    "verify": "set AWS_CA_BUNDLE to the server's certificates",
    "verify_cert_path": "set AWS_CA_BUNDLE",
    "config": "set the same in ~/.aws/config",
    "api_version": "leave it empty",
}


class S3RawBucket(ConfigurationPart):
    """A bucket at AWS, or at any server that speaks S3."""

    _block_type_name = "Penstock S3 Raw Bucket"
    _block_type_slug = "penstock-s3-raw-bucket"
    _description = "The bucket that holds documents as they were found, content-addressed."

    bucket_path: str = Field(description="The bucket and a prefix in it, as bucket/prefix")
    # Not shown: prefect-aws keeps a session token as plain text.
    credentials: MinIOCredentials | AwsCredentials = Field(
        default_factory=AwsCredentials,
        description="Whose bucket it is; an empty AWS block finds the key as AWS's tools do",
        repr=False,
    )

    def overrides(self) -> dict[str, Any]:
        access = self._access()
        return {
            "raw_store": self._location(),
            "s3_endpoint_url": access.endpoint_url,
            "s3_region": access.region,
            "s3_access_key_id": _secret(access.access_key_id),
            "s3_secret_access_key": _secret(access.secret_access_key),
            "s3_session_token": _secret(access.session_token),
        }

    def get_client(self) -> S3RawStore:
        return open_s3_raw_store(build_s3_client(self._access()), self._location())

    def _location(self) -> str:
        return f"s3://{self.bucket_path.removeprefix('s3://')}"

    def _access(self) -> S3Access:
        saved = self.credentials
        _refuse_what_is_not_used(saved)
        endpoint = saved.aws_client_parameters.endpoint_url
        if isinstance(saved, MinIOCredentials):
            password = saved.minio_root_password.get_secret_value()
            return S3Access(endpoint, saved.region_name, saved.minio_root_user, password)
        key = saved.aws_secret_access_key
        return S3Access(
            endpoint,
            saved.region_name,
            saved.aws_access_key_id,
            key.get_secret_value() if key else None,
            saved.aws_session_token,
        )


def _refuse_what_is_not_used(saved: MinIOCredentials | AwsCredentials) -> None:
    """A choice that is silently ignored ends in the wrong account, or on an open line."""
    chosen = {**dict(saved), **dict(saved.aws_client_parameters)}
    for name, advice in _ADVICE.items():
        # Forms leave some of these where nothing was chosen.
        if chosen.get(name) not in (None, True, "", {}):
            raise ConfigurationError(f"{name} of the credentials block is not used here: {advice}")


def _secret(value: str | None) -> SecretStr | None:
    return None if value is None else SecretStr(value)
