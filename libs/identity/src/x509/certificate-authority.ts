import { createPrivateKey, createPublicKey, randomBytes, webcrypto } from 'node:crypto';
import { isIP } from 'node:net';
import { CloudlessError, assert } from '@cloudless/base';
import { TRUST_DOMAIN_RULE, formatSpiffeId, isTrustDomain } from '../spiffe/spiffe-id.js';
import type { SpiffeId } from '../spiffe/spiffe-id.js';
import { readCertificate } from './certificate.js';
import type { Certificate } from './certificate.js';
import { signCertificate } from './sign-certificate.js';
import type { CertificateName } from './sign-certificate.js';
import { decodeCertificates, encodePem } from './pem.js';
import { P256_ALGORITHM, isSignedBy, readP256Key, sha256Hex } from './public-key.js';

/** Certificates and private keys of one generation of the authority, PEM. The keys are secret. */
export interface AuthorityPems {
  readonly rootPem: string;
  readonly rootKeyPem: string;
  readonly issuingPem: string;
  readonly issuingKeyPem: string;
}

/** A certificate that was issued, with the certificates above. */
export interface CertificateChain {
  /** Leaf, issuing certificate and root. */
  readonly pem: string;
  /** Serial number of the leaf: 32 lower-case hex digits. */
  readonly serial: string;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  /** SHA-256 of the public key (SubjectPublicKeyInfo, DER), 64 lower-case hex digits. */
  readonly publicKeySha256: string;
}

/** The contents of a certificate to issue. */
export interface CertificateRequest {
  readonly id: SpiffeId;
  /** SubjectPublicKeyInfo, DER; P-256. */
  readonly publicKey: Uint8Array;
  /** At least 1000. The certificate ends earlier when the authority ends earlier. */
  readonly lifetimeMs: number;
  readonly nowMs: number;
  /** DNS names beside the SPIFFE ID, for clients that check host names. */
  readonly dnsNames?: readonly string[];
  /** IPv4 and IPv6 addresses beside the SPIFFE ID. */
  readonly ipAddresses?: readonly string[];
  readonly usage: 'client' | 'server' | 'both';
}

const MINUTE_MS = 60_000;
const YEAR_MS = 365 * 24 * 60 * MINUTE_MS;
const ROOT_LIFETIME_MS = 10 * YEAR_MS;
const ISSUING_LIFETIME_MS = 5 * YEAR_MS;
/** The clocks of other machines may be slow. Certificates of an authority are valid from earlier. */
const AUTHORITY_BACKDATE_MS = 60 * MINUTE_MS;
const MAX_BACKDATE_MS = 5 * MINUTE_MS;
/** A short-lived certificate is backdated by at most this part of the lifetime. */
const BACKDATE_DIVISOR = 12;
const MIN_LIFETIME_MS = 1000;

/**
 * One generation of the certificate authority of a cluster: a root, valid for 10 years, and an
 * issuing key that the root has signed, valid for 5 years. Both are ECDSA keys on P-256.
 */
export class CertificateAuthority {
  readonly generation: number;
  readonly rootPem: string;
  /** SHA-256 of the root certificate (DER), 64 lower-case hex digits. */
  readonly rootSha256: string;
  /** Time in Unix milliseconds from which on nothing can be issued. */
  readonly notAfterMs: number;
  /** Issuing certificate and root. */
  private readonly upperPem: string;

  private constructor(
    private readonly trustDomain: string,
    generation: number,
    pems: Pick<AuthorityPems, 'rootPem' | 'issuingPem'>,
    root: Certificate,
    private readonly issuing: Certificate,
    private readonly issuingKey: webcrypto.CryptoKey,
  ) {
    this.generation = generation;
    this.rootPem = pems.rootPem;
    this.rootSha256 = sha256Hex(root.der);
    this.notAfterMs = Math.min(root.notAfterMs, issuing.notAfterMs);
    this.upperPem = `${pems.issuingPem}${pems.rootPem}`;
  }

  /**
   * Creates the keys and certificates of a new generation. Nothing is stored.
   * @param options - `generation` counts from 1. `clusterId` tells the authorities of several
   *   clusters apart in tools that show certificates.
   * @throws {@link CloudlessError} of kind `invalid` when the trust domain is not valid.
   */
  static async create(options: {
    readonly trustDomain: string;
    readonly clusterId?: string;
    readonly generation: number;
    readonly nowMs: number;
  }): Promise<{ readonly authority: CertificateAuthority } & AuthorityPems> {
    const { trustDomain, clusterId, generation, nowMs } = options;
    if (!isTrustDomain(trustDomain)) {
      throw new CloudlessError(
        'invalid',
        `${JSON.stringify(trustDomain)} is not a trust domain; ${TRUST_DOMAIN_RULE}`,
      );
    }
    const organization = clusterId === undefined ? 'Cloudless' : `Cloudless ${clusterId}`;
    const rootName = [{ O: [organization] }, { CN: [`Cloudless root ${generation}`] }];
    const issuingName = [{ O: [organization] }, { CN: [`Cloudless issuing ${generation}`] }];
    const uris = [`spiffe://${trustDomain}`];
    const [rootKeys, issuingKeys] = await Promise.all([createKeys(), createKeys()]);
    const notBeforeMs = floorToSecond(nowMs - AUTHORITY_BACKDATE_MS);
    const rootDer = await signCertificate({
      ...{ subject: rootName, issuer: rootName, uris, notBeforeMs },
      serial: createSerial(),
      notAfterMs: floorToSecond(nowMs + ROOT_LIFETIME_MS),
      publicKey: rootKeys.spki,
      issuerPublicKey: rootKeys.spki,
      signingKey: rootKeys.privateKey,
      use: { kind: 'authority', pathLength: 1 },
    });
    const issuingDer = await signCertificate({
      ...{ subject: issuingName, issuer: rootName, uris, notBeforeMs },
      serial: createSerial(),
      notAfterMs: floorToSecond(nowMs + ISSUING_LIFETIME_MS),
      publicKey: issuingKeys.spki,
      issuerPublicKey: rootKeys.spki,
      signingKey: rootKeys.privateKey,
      use: { kind: 'authority', pathLength: 0 },
    });
    const pems = {
      rootPem: encodePem('CERTIFICATE', rootDer),
      rootKeyPem: rootKeys.pem,
      issuingPem: encodePem('CERTIFICATE', issuingDer),
      issuingKeyPem: issuingKeys.pem,
    };
    const authority = await CertificateAuthority.load(pems, { trustDomain, generation, nowMs });
    return { authority, ...pems };
  }

  /**
   * Loads a generation.
   * @throws {@link CloudlessError} of kind `precondition` when a key does not belong to its
   *   certificate, the issuing certificate is not of the root, a certificate is of another trust
   *   domain, is damaged, or has expired.
   */
  static async load(
    pems: AuthorityPems,
    options: { readonly trustDomain: string; readonly generation: number; readonly nowMs: number },
  ): Promise<CertificateAuthority> {
    const { trustDomain, generation, nowMs } = options;
    const root = loadCertificate(pems.rootPem, pems.rootKeyPem, 'root', options);
    const issuing = loadCertificate(pems.issuingPem, pems.issuingKeyPem, 'issuing', options);
    const isChain =
      isSignedBy(root.signedBytes, root.signature, root.key) &&
      isSignedBy(issuing.signedBytes, issuing.signature, root.key);
    if (!isChain) {
      throw refuse(
        `the issuing certificate of generation ${generation} is not signed by the root certificate; restore both from one backup`,
      );
    }
    const authority = new CertificateAuthority(
      trustDomain,
      generation,
      { rootPem: toPem(root), issuingPem: toPem(issuing) },
      root,
      issuing,
      await importPrivateKey(pems.issuingKeyPem),
    );
    if (nowMs > authority.notAfterMs) throw authority.createExpiredError();
    return authority;
  }

  /**
   * Issues a certificate. The times are whole seconds. The certificate is valid from a little
   * earlier, a twelfth of the lifetime but at most 5 minutes, because other clocks may be slow.
   * @throws {@link CloudlessError} of kind `invalid` when the key is not on P-256, or an id, a name
   *   or an address is not valid; `denied` for an identity of another trust domain; `precondition`
   *   when the authority has expired.
   */
  async issue(request: CertificateRequest): Promise<CertificateChain> {
    const { id, publicKey, lifetimeMs, nowMs, dnsNames = [], ipAddresses = [], usage } = request;
    assert(lifetimeMs >= MIN_LIFETIME_MS, 'the lifetime of a certificate is at least 1 s');
    if (nowMs > this.notAfterMs) throw this.createExpiredError();
    if (id.trustDomain !== this.trustDomain) {
      throw new CloudlessError(
        'denied',
        `this cluster issues certificates of the trust domain "${this.trustDomain}", not "${id.trustDomain}"`,
      );
    }
    const uri = checkRequest(request);
    const backdateMs = Math.min(MAX_BACKDATE_MS, lifetimeMs / BACKDATE_DIVISOR);
    const notBeforeMs = floorToSecond(nowMs - backdateMs);
    const notAfterMs = Math.min(floorToSecond(nowMs + lifetimeMs + 999), this.notAfterMs);
    const serial = createSerial();
    const der = await signCertificate({
      serial,
      subject: toSubject(id),
      issuer: this.issuing.subject,
      notBeforeMs,
      notAfterMs,
      publicKey,
      issuerPublicKey: this.issuing.publicKey,
      signingKey: this.issuingKey,
      uris: [uri],
      dnsNames,
      ipAddresses,
      use: { kind: 'peer', usage },
    });
    return {
      pem: `${encodePem('CERTIFICATE', der)}${this.upperPem}`,
      serial,
      notBeforeMs,
      notAfterMs,
      publicKeySha256: sha256Hex(publicKey),
    };
  }

  private createExpiredError(): CloudlessError {
    return refuse(
      `generation ${this.generation} of the certificate authority expired at ${new Date(this.notAfterMs).toISOString()}; rotate the certificate authority`,
    );
  }
}

/** Largest length of a common name (RFC 5280, appendix A.1). */
const MAX_COMMON_NAME_LENGTH = 64;

/** Returns the subject of a certificate, for people only: the identity is the SPIFFE ID. */
function toSubject({ kind, id }: SpiffeId): CertificateName {
  const name = `${kind}/${id}`;
  // A shortened id could be the id of another node or user.
  return [{ O: ['Cloudless'] }, { CN: [name.length > MAX_COMMON_NAME_LENGTH ? kind : name] }];
}

const DNS_NAME =
  /^(?=.{1,253}$)(?:\*\.)?[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*$/i;

/** Refuses what cannot be in a certificate. Returns the SPIFFE ID as text. */
function checkRequest(request: CertificateRequest): string {
  const { id, publicKey, dnsNames = [], ipAddresses = [] } = request;
  for (const name of dnsNames) {
    if (!DNS_NAME.test(name))
      throw new CloudlessError('invalid', `${JSON.stringify(name)} is not a DNS name`);
  }
  for (const address of ipAddresses) {
    if (isIP(address) === 0 || address.includes('%'))
      throw new CloudlessError('invalid', `${JSON.stringify(address)} is not an IP address`);
  }
  try {
    readP256Key(publicKey, 'the requested certificate');
    return formatSpiffeId(id);
  } catch (cause) {
    throw cause instanceof CloudlessError ? new CloudlessError('invalid', cause.message) : cause;
  }
}

function loadCertificate(
  pem: string,
  keyPem: string,
  role: 'root' | 'issuing',
  options: { readonly trustDomain: string; readonly generation: number },
): Certificate {
  const what = `the ${role} certificate of generation ${options.generation}`;
  let certificate: Certificate;
  try {
    const [der = new Uint8Array()] = decodeCertificates(pem, what);
    certificate = readCertificate(der, what);
  } catch (cause) {
    throw cause instanceof CloudlessError ? refuse(cause.message) : cause;
  }
  if (!certificate.extensions.isCa || !certificate.extensions.maySignCertificates)
    throw refuse(`${what} is not one of a certificate authority`);
  const [uri = ''] = certificate.extensions.uris;
  if (uri !== `spiffe://${options.trustDomain}`) {
    throw refuse(
      `${what} is of the trust domain "${uri.replace('spiffe://', '')}", but --trust-domain is "${options.trustDomain}"`,
    );
  }
  if (Buffer.compare(derivePublicKey(keyPem, what), certificate.publicKey) !== 0)
    throw refuse(
      `${what} and its private key do not belong together; restore both from one backup`,
    );
  return certificate;
}

function derivePublicKey(keyPem: string, what: string): Uint8Array {
  try {
    return createPublicKey(createPrivateKey(keyPem)).export({ format: 'der', type: 'spki' });
  } catch {
    // The error of OpenSSL may repeat parts of the key.
    throw refuse(`the private key of ${what} is not a private key in PEM form`);
  }
}

interface Keys {
  readonly privateKey: webcrypto.CryptoKey;
  readonly pem: string;
  readonly spki: Uint8Array;
}

async function createKeys(): Promise<Keys> {
  const { subtle } = webcrypto;
  const pair = await subtle.generateKey(P256_ALGORITHM, true, ['sign', 'verify']);
  const pkcs8 = new Uint8Array(await subtle.exportKey('pkcs8', pair.privateKey));
  const spki = new Uint8Array(await subtle.exportKey('spki', pair.publicKey));
  return { privateKey: pair.privateKey, pem: encodePem('PRIVATE KEY', pkcs8), spki };
}

function importPrivateKey(keyPem: string): Promise<webcrypto.CryptoKey> {
  const pkcs8 = createPrivateKey(keyPem).export({ format: 'der', type: 'pkcs8' });
  return webcrypto.subtle.importKey('pkcs8', pkcs8, P256_ALGORITHM, false, ['sign']);
}

/** 127 random bits: positive, and never with a leading zero byte. */
function createSerial(): string {
  const bytes = randomBytes(16);
  bytes[0] = ((bytes[0] ?? 0) & 0x3f) | 0x40;
  return bytes.toString('hex');
}

function toPem({ der }: Certificate): string {
  return encodePem('CERTIFICATE', der);
}

function floorToSecond(ms: number): number {
  return Math.floor(ms / 1000) * 1000;
}

function refuse(message: string): CloudlessError {
  return new CloudlessError('precondition', message);
}
