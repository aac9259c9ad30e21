import { CloudlessError } from '@cloudless/base';
import {
  formatSpiffeId,
  parseSpiffeId,
  type SpiffeId,
  type SpiffeKind,
} from '../spiffe/spiffe-id.js';
import { readCertificate, type Certificate } from './certificate.js';
import { decodeCertificates } from './pem.js';
import { isSignedBy, sha256Hex } from './public-key.js';

/** Who a verified certificate stands for. */
export interface PeerIdentity {
  readonly id: SpiffeId;
  /** Serial number of the certificate, lower-case hex digits. */
  readonly serial: string;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  /** SHA-256 of the public key (SubjectPublicKeyInfo, DER), 64 lower-case hex digits. */
  readonly publicKeySha256: string;
  /** SHA-256 of the root certificate (DER) that the chain leads to, 64 lower-case hex digits. */
  readonly rootSha256: string;
}

/** Which peers are allowed. */
export interface AllowedPeers {
  /** Kinds of identities. Default: all. */
  readonly kinds?: readonly SpiffeKind[];
  /** Full SPIFFE IDs. Default: all. */
  readonly ids?: readonly string[];
  /** The part of the peer in the handshake. */
  readonly usage: 'client' | 'server';
  /**
   * Accepts the certificate of the peer for this time after its expiry, in milliseconds; the caller
   * compares `notAfterMs` with the time. Default: 0.
   */
  readonly expiredGraceMs?: number;
}

/** Largest number of certificates that a peer may present. The chains of a cluster have three. */
const MAX_CHAIN_LENGTH = 8;
/** Largest number of roots in a bundle. During a rotation of the authority there are two. */
const MAX_ROOTS = 16;
/** Verified issuing certificates that are kept, so that most chains cost one signature check. */
const MAX_KNOWN_ISSUERS = 16;

interface Root {
  readonly certificate: Certificate;
  readonly sha256: string;
}
interface Issuer {
  readonly certificate: Certificate;
  readonly root: Root;
}

/**
 * Verifies the certificate chains of peers against a trust bundle. Immutable: a changed bundle needs
 * a new verifier.
 *
 * A chain is leaf, issuing certificate, root. The root is taken only from the bundle. The issuing
 * certificate is taken from what the peer presents; other presented certificates are ignored.
 */
export class PeerVerifier {
  private readonly trustDomain: string;
  private readonly roots: readonly Root[];
  /** By SHA-256 of the issuing certificate. Holds only certificates that a root has signed. */
  private readonly knownIssuers = new Map<string, Issuer>();

  /**
   * @param options - `bundlePem`: the trusted root certificates; at most 16.
   * @throws {@link CloudlessError} of reason CERTIFICATE_INVALID when the bundle is empty, or one of
   *   the certificates is not a root.
   */
  constructor(options: { readonly trustDomain: string; readonly bundlePem: string }) {
    this.trustDomain = options.trustDomain;
    const certificates = decodeCertificates(options.bundlePem, 'the trust bundle');
    if (certificates.length > MAX_ROOTS)
      throw refuse(`the trust bundle has ${certificates.length} roots; the limit is ${MAX_ROOTS}`);
    this.roots = certificates.map((der, index) =>
      readRoot(der, `certificate ${index + 1} of the trust bundle`),
    );
  }

  /** SHA-256 of each root of the bundle, in the order of the bundle. */
  get rootSha256s(): readonly string[] {
    return this.roots.map(({ sha256 }) => sha256);
  }

  /**
   * Verifies a chain and returns the identity of the peer.
   * @param chainDer - The presented certificates, the certificate of the peer first.
   * @throws {@link CloudlessError} of reason CERTIFICATE_INVALID, CERTIFICATE_EXPIRED or
   *   CERTIFICATE_NOT_YET_VALID, with a separate text for each cause.
   */
  verify(chainDer: readonly Uint8Array[], nowMs: number, allowed?: AllowedPeers): PeerIdentity {
    const [leafDer, ...others] = chainDer;
    if (leafDer === undefined) throw refuse('no certificate was presented');
    if (chainDer.length > MAX_CHAIN_LENGTH) {
      throw refuse(
        `the chain has ${chainDer.length} certificates; the limit is ${MAX_CHAIN_LENGTH}`,
      );
    }
    const leaf = readCertificate(leafDer, 'the certificate');
    checkLeaf(leaf, allowed?.usage);
    const { certificate: issuing, root } = this.findIssuer(leaf, others);
    const isServer = allowed?.usage === 'client';
    checkValidity(root.certificate, 'the root certificate', nowMs, isServer);
    checkValidity(issuing, 'the issuing certificate', nowMs, isServer);
    checkValidity(leaf, 'the certificate', nowMs, isServer, allowed?.expiredGraceMs);
    return {
      id: this.readId(leaf, allowed),
      serial: leaf.serial,
      notBeforeMs: leaf.notBeforeMs,
      notAfterMs: leaf.notAfterMs,
      publicKeySha256: sha256Hex(leaf.publicKey),
      rootSha256: root.sha256,
    };
  }

  /** Returns the presented certificate that signed the leaf, and the root that signed that one. */
  private findIssuer(leaf: Certificate, presented: readonly Uint8Array[]): Issuer {
    if (isSameName(leaf.issuer, leaf.subject)) {
      throw refuse(
        'the certificate is self-signed; a peer needs a certificate of the certificate authority of the cluster',
      );
    }
    let isNamed = false;
    for (const [index, der] of presented.entries()) {
      const digest = sha256Hex(der);
      const known = this.knownIssuers.get(digest);
      const certificate =
        known?.certificate ?? readCertificate(der, `certificate ${index + 2} of the chain`);
      if (!isSameName(certificate.subject, leaf.issuer)) continue;
      isNamed = true;
      if (!isSignedBy(leaf.signedBytes, leaf.signature, certificate.key)) continue;
      if (known !== undefined) return known;
      const issuer = { certificate, root: this.findRoot(certificate) };
      if (this.knownIssuers.size < MAX_KNOWN_ISSUERS) this.knownIssuers.set(digest, issuer);
      return issuer;
    }
    if (isNamed)
      throw refuse('the signature of the certificate is not of the issuing certificate beside it');
    throw refuse('the issuing certificate was not presented together with the certificate');
  }

  private findRoot(issuing: Certificate): Root {
    const { isCa, pathLength, maySignCertificates } = issuing.extensions;
    if (!isCa || !maySignCertificates || pathLength !== 0) {
      throw refuse(
        'the issuing certificate may not issue certificates of peers (basic constraints or key usage)',
      );
    }
    const root = this.roots.find(
      ({ certificate }) =>
        isSameName(certificate.subject, issuing.issuer) &&
        isSignedBy(issuing.signedBytes, issuing.signature, certificate.key),
    );
    if (root !== undefined) return root;
    throw refuse(
      'the certificate is of another certificate authority: the root of its chain is not in the trust bundle',
    );
  }

  private readId(leaf: Certificate, allowed: AllowedPeers | undefined): SpiffeId {
    const { uris } = leaf.extensions;
    const [uri] = uris;
    if (uri === undefined || uris.length > 1) {
      throw refuse(
        `the certificate has ${uris.length === 0 ? 'no URI' : `${uris.length} URIs`} among its alternative names; a peer has exactly one, the SPIFFE ID`,
      );
    }
    const id = parseSpiffeId(uri);
    if (id.trustDomain !== this.trustDomain) {
      throw refuse(
        `the certificate is of the trust domain "${id.trustDomain}"; this cluster has the trust domain "${this.trustDomain}"`,
      );
    }
    if (allowed?.kinds !== undefined && !allowed.kinds.includes(id.kind)) {
      throw refuse(
        `the certificate is of the ${id.kind} "${id.id}"; allowed here: ${allowed.kinds.join(', ')}`,
      );
    }
    const full = formatSpiffeId(id);
    if (allowed?.ids !== undefined && !allowed.ids.includes(full))
      throw refuse(`the certificate is of ${full}; expected: ${allowed.ids.join(', ')}`);
    return id;
  }
}

/** Returns SHA-256 of the first certificate of a PEM text (DER), 64 lower-case hex digits. */
export function hashRoot(pem: string): string {
  const [der] = decodeCertificates(pem, 'the root certificate');
  return sha256Hex(der ?? new Uint8Array());
}

function readRoot(der: Uint8Array, what: string): Root {
  const certificate = readCertificate(der, what);
  const { isCa, pathLength, maySignCertificates } = certificate.extensions;
  const isSelfSigned =
    isSameName(certificate.subject, certificate.issuer) &&
    isSignedBy(certificate.signedBytes, certificate.signature, certificate.key);
  if (!isCa || !maySignCertificates || pathLength === 0 || !isSelfSigned)
    throw refuse(`${what} is not the root of a certificate authority`);
  return { certificate, sha256: sha256Hex(der) };
}

function checkLeaf({ extensions }: Certificate, usage: 'client' | 'server' | undefined): void {
  if (extensions.isCa || extensions.maySignCertificates)
    throw refuse('the certificate is one of a certificate authority, not of a peer');
  if (!extensions.maySignHandshakes)
    throw refuse('the key of the certificate may not sign handshakes (key usage digitalSignature)');
  if (usage === 'client' && !extensions.forClients)
    throw refuse('the certificate is not made for clients (extended key usage clientAuth)');
  if (usage === 'server' && !extensions.forServers)
    throw refuse('the certificate is not made for servers (extended key usage serverAuth)');
}

/**
 * Refuses a certificate outside of its validity, which includes both of its ends.
 * @param isServer - Whether this process is the server, whose clients compare `serverTime` with their
 *   own clock.
 */
function checkValidity(
  { notBeforeMs, notAfterMs }: Certificate,
  what: string,
  nowMs: number,
  isServer: boolean,
  expiredGraceMs = 0,
): void {
  const isEarly = nowMs < notBeforeMs;
  if (!isEarly && nowMs <= notAfterMs + expiredGraceMs) return;
  const notBefore = formatTime(notBeforeMs);
  const notAfter = formatTime(notAfterMs);
  const now = formatTime(nowMs);
  throw new CloudlessError(
    isEarly ? 'CERTIFICATE_NOT_YET_VALID' : 'CERTIFICATE_EXPIRED',
    isEarly
      ? `${what} is valid from ${notBefore} on, and the clock here shows ${now}; compare the clocks of both machines`
      : `${what} expired at ${notAfter}, and the clock here shows ${now}`,
    { metadata: { notBefore, notAfter, ...(isServer ? { serverTime: now } : {}) } },
  );
}

function formatTime(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, 'Z');
}

function isSameName(left: Uint8Array, right: Uint8Array): boolean {
  return Buffer.compare(left, right) === 0;
}

function refuse(message: string): CloudlessError {
  return new CloudlessError('CERTIFICATE_INVALID', message);
}
