import type { KeyObject } from 'node:crypto';
import { CloudlessError } from '@cloudless/base';
import { DerReader, DerTag, readBitStringBytes } from './der.js';
import { NO_EXTENSIONS, readExtensions } from './extensions.js';
import type { CertificateExtensions } from './extensions.js';
import { ECDSA_SHA256, checkP256, readP256Key } from './public-key.js';

/** Largest size of one certificate in bytes. A certificate of a cluster has about 600. */
export const MAX_CERTIFICATE_BYTES = 8 * 1024;

/** The parts of an X.509 certificate that a verification needs. Nothing is verified yet. */
export interface Certificate {
  readonly der: Uint8Array;
  /** The signed part, TBSCertificate. */
  readonly signedBytes: Uint8Array;
  readonly signature: Uint8Array;
  /** Lower-case hex digits without leading zero bytes. */
  readonly serial: string;
  /** Name, DER. */
  readonly issuer: Uint8Array;
  /** Name, DER. */
  readonly subject: Uint8Array;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  /** SubjectPublicKeyInfo, DER. */
  readonly publicKey: Uint8Array;
  /**
   * Read on first use: the key of a peer is never needed, because the handshake has proved it.
   * @throws {@link CloudlessError} of reason CERTIFICATE_INVALID when the point is not on the curve.
   */
  readonly key: KeyObject;
  readonly extensions: CertificateExtensions;
}

/**
 * Reads a certificate in the form that `CertificateAuthority` gives it: X.509 version 3,
 * signed with ECDSA and SHA-256, key on P-256.
 * @param what - The certificate for errors: `the certificate`.
 * @throws {@link CloudlessError} of reason CERTIFICATE_INVALID.
 * @see RFC 5280, section 4.1
 */
export function readCertificate(der: Uint8Array, what: string): Certificate {
  if (der.length > MAX_CERTIFICATE_BYTES) {
    throw new CloudlessError(
      'CERTIFICATE_INVALID',
      `${what} has ${der.length} bytes; the limit is ${MAX_CERTIFICATE_BYTES}`,
    );
  }
  const outer = new DerReader(der, what);
  const parts = outer.enter(DerTag.sequence);
  outer.expectEnd();
  const signed = parts.expect(DerTag.sequence);
  const algorithm = parts.expect(DerTag.sequence).bytes;
  const signature = readBitStringBytes(parts.expect(DerTag.bitString), parts);
  parts.expectEnd();

  const fields = new DerReader(signed.content, what);
  const version = fields.readOptional(DerTag.context0)?.content ?? new Uint8Array();
  if (!VERSION_3.equals(version))
    throw new CloudlessError('CERTIFICATE_INVALID', `${what} is not X.509 version 3`);
  const serial = readSerial(fields);
  const innerAlgorithm = fields.expect(DerTag.sequence).bytes;
  if (!ECDSA_SHA256.equals(algorithm) || !ECDSA_SHA256.equals(innerAlgorithm)) {
    throw new CloudlessError('CERTIFICATE_INVALID', `${what} is not signed with ECDSA and SHA-256`);
  }
  const issuer = fields.expect(DerTag.sequence).bytes;
  const validity = fields.enter(DerTag.sequence);
  const notBeforeMs = readTime(validity);
  const notAfterMs = readTime(validity);
  validity.expectEnd();
  const subject = fields.expect(DerTag.sequence).bytes;
  const publicKey = fields.expect(DerTag.sequence).bytes;
  const extensions = fields.readOptional(DerTag.context3);
  fields.expectEnd();
  checkP256(publicKey, what);
  let key: KeyObject | undefined;
  return {
    der,
    signedBytes: signed.bytes,
    signature,
    serial,
    issuer,
    subject,
    notBeforeMs,
    notAfterMs,
    publicKey,
    get key(): KeyObject {
      return (key ??= readP256Key(publicKey, what));
    },
    extensions: extensions === undefined ? NO_EXTENSIONS : readExtensions(extensions.content, what),
  };
}

/** `INTEGER 2`, the content of the explicit tag of the version. */
const VERSION_3 = Buffer.from('020102', 'hex');

/** Largest length of a serial number in bytes (RFC 5280, section 4.1.2.2). */
const MAX_SERIAL_BYTES = 20;

function readSerial(fields: DerReader): string {
  const { content } = fields.expect(DerTag.integer);
  const [first = 0x80, second = 0] = content;
  const isMinimal = content.length === 1 || first !== 0 || second >= 0x80;
  if (first >= 0x80 || !isMinimal || content.length > MAX_SERIAL_BYTES) throw fields.malformed();
  return Buffer.from(first === 0 && content.length > 1 ? content.subarray(1) : content).toString(
    'hex',
  );
}

const UTC_TIME = /^\d{12}Z$/;
const GENERALIZED_TIME = /^\d{14}Z$/;
/** Two-digit years from here on are in the 20th century (RFC 5280, section 4.1.2.5.1). */
const FIRST_YEAR_OF_1900 = 50;

function readTime(validity: DerReader): number {
  const { tag, content } = validity.read();
  const text = Buffer.from(content).toString('latin1');
  let digits = text;
  if (tag === DerTag.utcTime && UTC_TIME.test(text))
    digits = `${Number(text.slice(0, 2)) < FIRST_YEAR_OF_1900 ? '20' : '19'}${text}`;
  else if (tag !== DerTag.generalizedTime || !GENERALIZED_TIME.test(text))
    throw validity.malformed();
  const iso = digits.replace(/^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z$/, '$1-$2-$3T$4:$5:$6.000Z');
  const ms = Date.parse(iso);
  // Refuses days and hours that do not exist, such as the 30th of February.
  if (Number.isNaN(ms) || new Date(ms).toISOString() !== iso) throw validity.malformed();
  return ms;
}
