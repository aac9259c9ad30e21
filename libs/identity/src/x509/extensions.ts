import { CloudlessError } from '@cloudless/base';
import { DerReader, DerTag } from './der.js';

/** What the extensions of a certificate say (RFC 5280, section 4.2). */
export interface CertificateExtensions {
  /** True when the certificate is one of a certificate authority. */
  readonly isCa: boolean;
  /** Number of certificate authorities that may follow below; undefined: any number. */
  readonly pathLength: number | undefined;
  /** True when the key may sign a handshake: key usage digitalSignature. */
  readonly maySignHandshakes: boolean;
  /** True when the key may sign certificates: key usage keyCertSign. */
  readonly maySignCertificates: boolean;
  /** Extended key usage clientAuth. */
  readonly forClients: boolean;
  /** Extended key usage serverAuth. */
  readonly forServers: boolean;
  /** Alternative names of type URI, in the order of the certificate. */
  readonly uris: readonly string[];
}

/** A certificate without extensions may do nothing. */
export const NO_EXTENSIONS: CertificateExtensions = {
  isCa: false,
  pathLength: undefined,
  maySignHandshakes: false,
  maySignCertificates: false,
  forClients: false,
  forServers: false,
  uris: [],
};

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };
type ReadExtension = (value: DerReader, result: Mutable<CertificateExtensions>) => void;

/** Readers by the object identifier, content bytes in hex. */
const READERS: Readonly<Record<string, ReadExtension>> = {
  '551d13': readBasicConstraints,
  '551d0f': readKeyUsage,
  '551d25': readExtendedKeyUsage,
  '551d11': readAlternativeNames,
};
const CLIENT_AUTH = '2b06010505070302';
const SERVER_AUTH = '2b06010505070301';

/** Bits of the first byte of KeyUsage (RFC 5280, section 4.2.1.3). */
const DIGITAL_SIGNATURE = 0x80;
const KEY_CERT_SIGN = 0x04;

/** GeneralName of type uniformResourceIdentifier. */
const URI_TAG = 0x86;

/** Largest accepted path length. Chains of a cluster have one issuing certificate. */
const MAX_PATH_LENGTH = 127;

/**
 * Reads the extensions of a certificate.
 * @param explicit - Content of the tag `[3]`.
 * @param what - The certificate for errors.
 * @throws {@link CloudlessError} of reason CERTIFICATE_INVALID, also for an extension that occurs
 *   twice, and for a critical extension that is not known.
 */
export function readExtensions(explicit: Uint8Array, what: string): CertificateExtensions {
  const outer = new DerReader(explicit, what);
  const list = outer.enter(DerTag.sequence);
  outer.expectEnd();
  const result: Mutable<CertificateExtensions> = { ...NO_EXTENSIONS };
  const seen = new Set<string>();
  while (!list.atEnd) {
    const extension = list.enter(DerTag.sequence);
    const oid = toHex(extension.expect(DerTag.oid).content);
    const critical = readOptionalTrue(extension);
    const value = extension.expect(DerTag.octetString).content;
    extension.expectEnd();
    if (seen.has(oid)) throw refuse(`${what} has the same extension twice`);
    seen.add(oid);
    const read = Object.hasOwn(READERS, oid) ? READERS[oid] : undefined;
    if (read !== undefined) read(new DerReader(value, what), result);
    else if (critical) throw refuse(`${what} has a critical extension that is not known here`);
  }
  return result;
}

function readBasicConstraints(value: DerReader, result: Mutable<CertificateExtensions>): void {
  const fields = value.enter(DerTag.sequence);
  value.expectEnd();
  result.isCa = readOptionalTrue(fields);
  const pathLength = fields.readOptional(DerTag.integer)?.content;
  fields.expectEnd();
  if (pathLength === undefined) return;
  const [length = MAX_PATH_LENGTH + 1] = pathLength;
  if (pathLength.length !== 1 || length > MAX_PATH_LENGTH || !result.isCa) throw value.malformed();
  result.pathLength = length;
}

function readKeyUsage(value: DerReader, result: Mutable<CertificateExtensions>): void {
  const { content } = value.expect(DerTag.bitString);
  value.expectEnd();
  const [unusedBits = 8, usages = 0] = content;
  if (content.length < 2 || content.length > 3 || unusedBits > 7) throw value.malformed();
  result.maySignHandshakes = (usages & DIGITAL_SIGNATURE) !== 0;
  result.maySignCertificates = (usages & KEY_CERT_SIGN) !== 0;
}

function readExtendedKeyUsage(value: DerReader, result: Mutable<CertificateExtensions>): void {
  const usages = value.enter(DerTag.sequence);
  value.expectEnd();
  while (!usages.atEnd) {
    const oid = toHex(usages.expect(DerTag.oid).content);
    if (oid === CLIENT_AUTH) result.forClients = true;
    if (oid === SERVER_AUTH) result.forServers = true;
  }
}

function readAlternativeNames(value: DerReader, result: Mutable<CertificateExtensions>): void {
  const names = value.enter(DerTag.sequence);
  value.expectEnd();
  const uris: string[] = [];
  while (!names.atEnd) {
    const { tag, content } = names.read();
    if (tag === URI_TAG) uris.push(Buffer.from(content).toString('latin1'));
  }
  result.uris = uris;
}

/** Reads `BOOLEAN DEFAULT FALSE`: in DER either absent or TRUE, which is 0xff. */
function readOptionalTrue(reader: DerReader): boolean {
  const value = reader.readOptional(DerTag.boolean);
  if (value === undefined) return false;
  if (value.content.length !== 1 || value.content[0] !== 0xff) throw reader.malformed();
  return true;
}

function toHex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}

function refuse(message: string): CloudlessError {
  return new CloudlessError('CERTIFICATE_INVALID', message);
}
