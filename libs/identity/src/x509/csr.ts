import { generateKeyPair, sign } from 'node:crypto';
import { promisify } from 'node:util';
import { CloudlessError } from '@cloudless/base';
import { DerReader, DerTag, encodeDer, readBitStringBytes } from './der.js';
import { ECDSA_SHA256, isSignedBy, readP256Key, sha256Hex } from './public-key.js';

/** Most bytes of a certificate signing request. A request of `createKeyAndCsr` has about 200. */
const MAX_CSR_BYTES = 16 * 1024;

const WHAT = 'the certificate signing request';

/** A new key pair, and the request for a certificate. */
export interface KeyAndCsr {
  /** The private key, PKCS #8. Secret. */
  readonly keyPem: string;
  /** The certificate signing request, DER. Contains only the public key. */
  readonly csr: Uint8Array;
  /** SHA-256 of the public key (SubjectPublicKeyInfo, DER), 64 lower-case hex digits. */
  readonly publicKeySha256: string;
}

/** Creates an ECDSA key on P-256 and a certificate signing request for the key. */
export async function createKeyAndCsr(): Promise<KeyAndCsr> {
  const { privateKey, publicKey } = await generateKeys('ec', {
    namedCurve: 'P-256',
    publicKeyEncoding: { type: 'spki', format: 'der' },
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
  });
  const info = encodeDer(DerTag.sequence, VERSION_1, NO_NAME, publicKey, NO_ATTRIBUTES);
  const signature = sign('sha256', info, privateKey);
  const bits = encodeDer(DerTag.bitString, Uint8Array.of(0), signature);
  return {
    keyPem: privateKey,
    csr: encodeDer(DerTag.sequence, info, ECDSA_SHA256, bits),
    publicKeySha256: sha256Hex(publicKey),
  };
}

const generateKeys = promisify(generateKeyPair);

/** The parts of a request that has nothing but the key (RFC 2986, section 4.1). */
const VERSION_1 = encodeDer(DerTag.integer, Uint8Array.of(0));
const NO_NAME = encodeDer(DerTag.sequence);
const NO_ATTRIBUTES = encodeDer(DerTag.context0);

/** The part of a certificate signing request that the issuer uses. */
export interface CsrKey {
  /** SubjectPublicKeyInfo, DER. */
  readonly publicKey: Uint8Array;
  /** SHA-256 of `publicKey`, 64 lower-case hex digits. */
  readonly publicKeySha256: string;
}

/**
 * Reads the public key of a certificate signing request. Everything else that the request asks for
 * (name, alternative names, extensions) is ignored: the issuer decides.
 * @param der - At most 16 KiB.
 * @throws {@link CloudlessError} of kind `invalid` when the request is malformed, the key is not on
 *   P-256, or the signature is not made with the key.
 * @see RFC 2986, section 4
 */
export async function readCsr(der: Uint8Array): Promise<CsrKey> {
  try {
    return parseCsr(der);
  } catch (cause) {
    // The sender of a request is not refused for its identity: the input is not valid.
    if (cause instanceof CloudlessError) throw new CloudlessError('invalid', cause.message);
    throw cause;
  }
}

function parseCsr(der: Uint8Array): CsrKey {
  if (der.length > MAX_CSR_BYTES)
    throw refuse(`has ${der.length} bytes; the limit is ${MAX_CSR_BYTES}`);
  const outer = new DerReader(der, WHAT);
  const request = outer.enter(DerTag.sequence);
  outer.expectEnd();
  const info = request.expect(DerTag.sequence);
  const algorithm = request.expect(DerTag.sequence);
  const signature = readBitStringBytes(request.expect(DerTag.bitString), request);
  request.expectEnd();
  const fields = new DerReader(info.content, WHAT);
  fields.expect(DerTag.integer);
  fields.expect(DerTag.sequence); // the subject
  const spki = fields.expect(DerTag.sequence).bytes;
  const key = readP256Key(spki, WHAT);
  if (!ECDSA_SHA256.equals(algorithm.bytes) || !isSignedBy(info.bytes, signature, key))
    throw refuse('is not signed by the key in the request with ECDSA and SHA-256');
  return { publicKey: new Uint8Array(spki), publicKeySha256: sha256Hex(spki) };
}

function refuse(problem: string): CloudlessError {
  return new CloudlessError('invalid', `${WHAT} ${problem}`);
}
