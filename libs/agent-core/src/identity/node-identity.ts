import { timestampMs } from '@bufbuild/protobuf/wkt';
import { CloudlessError } from '@cloudless/base';
import type { NodeCertificate } from '@cloudless/api';

/** A new key pair with its certificate signing request. */
export interface CertificateRequest {
  /** The private key in PEM. Secret: the key never leaves the machine. */
  readonly keyPem: string;
  /** The certificate signing request in DER. */
  readonly csr: Uint8Array;
  /** SHA-256 of the public key (SubjectPublicKeyInfo in DER), hexadecimal. */
  readonly publicKeySha256: string;
}

/** The roots that this node trusts. */
export interface TrustedRoots {
  /** Number of the bundle. */
  readonly generation: bigint;
  /** The root certificates in PEM. */
  readonly pem: string;
}

/** What a node knows of its own identity, without the key. Nothing in this object is secret. */
export interface IdentityFacts {
  readonly nodeId: string;
  readonly clusterId: string;
  readonly trustDomain: string;
  /** SPIFFE IDs of the coordinators of the cluster; the node accepts no other servers. */
  readonly coordinatorIds: readonly string[];
  readonly trustBundle: TrustedRoots;
  /** Certificate, issuing certificate and root certificate in PEM. */
  readonly chainPem: string;
  /** SHA-256 of the public key of the certificate, hexadecimal. */
  readonly publicKeySha256: string;
  /** Beginning of the validity, milliseconds since the Unix epoch. */
  readonly notBeforeMs: number;
  /** End of the validity, milliseconds since the Unix epoch. */
  readonly notAfterMs: number;
  /** Time at which this node got the certificate, by its own clock. */
  readonly obtainedAtMs: number;
}

/** The identity of this node: its certificate with the key. */
export interface NodeIdentity extends IdentityFacts {
  /** The private key in PEM. Secret. */
  readonly keyPem: string;
}

/**
 * Converts a certificate that a coordinator has issued for the key of `request`.
 * @param nowMs - Milliseconds since the Unix epoch.
 * @throws kind `invalid` when a part is missing.
 */
export function toNodeIdentity(
  certificate: NodeCertificate | undefined,
  of: { readonly nodeId: string; readonly clusterId: string; readonly request: CertificateRequest },
  nowMs: number,
): NodeIdentity {
  const { certificateChain = '', trustBundle, notBefore, notAfter } = certificate ?? {};
  const { coordinatorIds = [], trustDomain = '' } = certificate ?? {};
  const missing = Object.entries({
    certificate: certificateChain === '',
    'trust bundle': (trustBundle?.pem ?? '') === '',
    validity: notBefore === undefined || notAfter === undefined,
    'ids of coordinators': coordinatorIds.length === 0,
    'trust domain': trustDomain === '',
  }).flatMap(([part, isMissing]) => (isMissing ? [part] : []));
  if (trustBundle === undefined || notBefore === undefined || notAfter === undefined || missing[0])
    throw new CloudlessError(
      'invalid',
      `the coordinator sent a certificate without ${missing.join(', ')}; update the coordinator or the agent, so that both have the same version`,
    );
  return {
    nodeId: of.nodeId,
    clusterId: of.clusterId,
    trustDomain,
    coordinatorIds,
    trustBundle: { generation: trustBundle.generation, pem: trustBundle.pem },
    keyPem: of.request.keyPem,
    chainPem: certificateChain,
    publicKeySha256: of.request.publicKeySha256,
    notBeforeMs: timestampMs(notBefore),
    notAfterMs: timestampMs(notAfter),
    obtainedAtMs: nowMs,
  };
}

/** Share of the validity after which a certificate is renewed, and the random part after it. */
const RENEWAL = { from: 0.5, jitter: 0.1 };

/**
 * Returns the time at which a certificate should be renewed, milliseconds since the Unix epoch: from
 * half of its life on. A certificate is often valid from before the time of its issue, so its life
 * begins when this node got it.
 * @param jitter - From 0 to 1; spreads the renewals of nodes that joined together.
 */
export function renewalTimeMs(validity: ObtainedValidity, jitter: number): number {
  return beginOfLife(validity) + renewalDelayMs(validity, jitter);
}

/**
 * Returns the time from the receipt of a certificate to its renewal, milliseconds.
 * @param jitter - As for {@link renewalTimeMs}.
 */
export function renewalDelayMs(validity: ObtainedValidity, jitter: number): number {
  const lifeMs = validity.notAfterMs - beginOfLife(validity);
  return lifeMs * (RENEWAL.from + RENEWAL.jitter * jitter);
}

type ObtainedValidity = Pick<IdentityFacts, 'notBeforeMs' | 'notAfterMs' | 'obtainedAtMs'>;

/** The time of receipt, limited to the validity when the clocks differ. */
function beginOfLife({ notBeforeMs, notAfterMs, obtainedAtMs }: ObtainedValidity): number {
  return Math.min(Math.max(obtainedAtMs, notBeforeMs), notAfterMs);
}

/**
 * Tells what the clock of this machine says about a certificate: `future` when the clock of the
 * coordinator is ahead, or this one is behind.
 */
export function getValidity(
  { notBeforeMs, notAfterMs }: Pick<IdentityFacts, 'notBeforeMs' | 'notAfterMs'>,
  nowMs: number,
): 'future' | 'valid' | 'expired' {
  if (nowMs < notBeforeMs) return 'future';
  return nowMs < notAfterMs ? 'valid' : 'expired';
}
