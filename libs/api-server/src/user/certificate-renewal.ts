import { clone } from '@bufbuild/protobuf';
import {
  CredentialRecordSchema,
  type CertificateRecord,
  type CredentialRecord,
} from '@cloudless/api/store';

/**
 * Returns a credential with a new certificate. The certificate before is accepted until it
 * expires or the next renewal, because a user runs several programs with one identity. Which one that is depends on what the client surely has: a client that calls again with
 * the same key, or with the previous certificate, never received the current one.
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
