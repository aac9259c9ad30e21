import { clone } from '@bufbuild/protobuf';
import {
  CredentialRecordSchema,
  type CertificateRecord,
  type CredentialRecord,
} from '@cloudless/api/store';

/**
 * Returns a credential with a new certificate. The previous certificate is accepted until its
 * expiry or the next renewal, because a user runs several programs with one identity. A call with
 * the previous certificate, or again with the key of the current one, shows that the client may not
 * have received the current certificate: then the previous certificate stays the previous one.
 * @param usedSerial - Serial number of the certificate of the call.
 */
export function renewCertificate(
  record: CredentialRecord,
  certificate: CertificateRecord,
  usedSerial: string,
): CredentialRecord {
  const { current, previous } = record;
  const isRepeated =
    previous !== undefined &&
    (usedSerial === previous.serial || current?.publicKeySha256 === certificate.publicKeySha256);
  const renewed = clone(CredentialRecordSchema, record);
  renewed.current = certificate;
  const before = isRepeated ? previous : current;
  if (before === undefined) delete renewed.previous;
  else renewed.previous = before;
  return renewed;
}
