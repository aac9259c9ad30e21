import { clone, create } from '@bufbuild/protobuf';
import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt';
import {
  NodeCertificateSchema,
  TrustBundleSchema,
  type NodeCertificate,
  type TrustBundle,
} from '@cloudless/api';
import {
  CertificateRecordSchema,
  NodeIdentityRecordSchema,
  type CertificateRecord,
  type NodeIdentityRecord,
} from '@cloudless/api/store';
import type { IdentityPort, IssuedCertificate } from '../access/identity-port.js';

/** The record of a certificate that was issued at `nowMs`, wall-clock milliseconds. */
export function toCertificateRecord(issued: IssuedCertificate, nowMs: number): CertificateRecord {
  return create(CertificateRecordSchema, {
    serial: issued.serial,
    publicKeySha256: issued.publicKeySha256,
    notAfter: timestampFromMs(issued.notAfterMs),
    generation: issued.generation,
    issuedAt: timestampFromMs(nowMs),
  });
}

/**
 * Returns the record of a certificate that takes the place of another one. The time of issue never
 * goes back, also when the clock was set back: a certificate that is valid only after the time in the
 * record counts as newer than the record.
 */
export function toSuccessor(
  next: CertificateRecord,
  before: CertificateRecord | undefined,
): CertificateRecord {
  const [nextMs, beforeMs] = [next, before].map((record) =>
    record?.issuedAt === undefined ? 0 : timestampMs(record.issuedAt),
  ) as [number, number];
  if (nextMs >= beforeMs) return next;
  return Object.assign(clone(CertificateRecordSchema, next), {
    issuedAt: timestampFromMs(beforeMs),
  });
}

/** A renewal of the certificate of a node. */
export interface NodeRenewal {
  readonly issued: CertificateRecord;
  /** Serial of the certificate with which the node made the call; undefined: not known. */
  readonly callerSerial: string | undefined;
  /**
   * The certificate of the call is newer than the record, which was restored from an older backup.
   * Default false.
   */
  readonly isCallerNewer?: boolean;
  /** Generation of the trust bundle that the agent has stored. */
  readonly trustBundleGeneration: bigint;
}

/**
 * Returns the identity of a node after a renewal. The certificate of the call stays valid until the
 * new one was used, so a reply that is lost never locks a node out: the agent can repeat the call
 * with the certificate that it has, as often as it likes.
 */
export function renewNodeIdentity(
  before: NodeIdentityRecord,
  { issued, callerSerial, isCallerNewer = false, trustBundleGeneration }: NodeRenewal,
): NodeIdentityRecord {
  const after = clone(NodeIdentityRecordSchema, before);
  const { current, previous } = before;
  const isOfPrevious = previous !== undefined && previous.serial === callerSerial;
  const kept = isOfPrevious ? previous : current;
  after.current = toSuccessor(issued, current);
  if (isCallerNewer && callerSerial !== undefined && current?.serial !== callerSerial) {
    const { generation } = issued;
    after.previous = create(CertificateRecordSchema, { serial: callerSerial, generation });
  } else if (kept !== undefined) after.previous = clone(CertificateRecordSchema, kept);
  // An agent never goes back to an older bundle. A lower number is a delayed call.
  if (trustBundleGeneration > after.trustBundleGeneration)
    after.trustBundleGeneration = trustBundleGeneration;
  return after;
}

/** Builds the message with the roots to trust. */
export function presentTrustBundle(identity: IdentityPort): TrustBundle {
  const { generation, pem } = identity.getTrustBundle();
  return create(TrustBundleSchema, { generation, pem });
}

/** Builds the reply with a new certificate and what the node needs to trust its coordinators. */
export function presentNodeCertificate(
  identity: IdentityPort,
  issued: IssuedCertificate,
): NodeCertificate {
  return create(NodeCertificateSchema, {
    certificateChain: issued.pem,
    trustBundle: presentTrustBundle(identity),
    notBefore: timestampFromMs(issued.notBeforeMs),
    notAfter: timestampFromMs(issued.notAfterMs),
    coordinatorIds: [...identity.coordinatorIds],
    trustDomain: identity.trustDomain,
  });
}
