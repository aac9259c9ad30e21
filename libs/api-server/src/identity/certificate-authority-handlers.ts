import { X509Certificate } from 'node:crypto';
import { create } from '@bufbuild/protobuf';
import { durationMs, timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt';
import {
  CertificateAuthorityRotationSchema,
  CertificateAuthoritySchema,
  FetchAuthorityKeysResponseSchema,
  RootCertificateSchema,
  type CertificateAuthority,
  type CertificateAuthorityRotation,
  type FetchAuthorityKeysRequest,
  type FetchAuthorityKeysResponse,
  type RootCertificate,
  type RotateCertificateAuthorityRequest,
} from '@cloudless/api';
import type { CertificateAuthorityRecord } from '@cloudless/api/store';
import { CloudlessError, definedFields } from '@cloudless/base';
import {
  CERTIFICATE_AUTHORITY_KEY,
  advanceRotation,
  getRotationProgress,
  isRotating,
  noteKeyHolder,
  putRotationPhase,
  startRotation,
  type Stored,
} from '@cloudless/cluster-state';
import type { IdentityPort } from '../access/identity-port.js';
import type { AuditEntry } from '../audit/audit-log.js';
import type { MutationDeps } from '../mutation/idempotent-mutation.js';
import { retryOnConflict } from '../mutation/retry-on-conflict.js';

/** Largest number of nodes, and of users, that the progress of a rotation lists. */
const MAX_LISTED = 100;
const SUBJECT = 'the certificate authority';

/** Handlers of the calls of IdentityService about the certificate authority. */
export class CertificateAuthorityHandlers {
  constructor(
    private readonly deps: MutationDeps,
    private readonly identity: IdentityPort,
  ) {}

  getCertificateAuthority(): CertificateAuthority {
    return this.present(this.requireAuthority().value);
  }

  /**
   * Begins a rotation. The key files of the new generation are complete on disk before the record
   * names the generation, so a crash in between leaves only unused files, which the next call uses.
   * Changes nothing while a rotation runs, or after one that was completed so recently that the call
   * may be a repeated one.
   */
  rotate(
    request: RotateCertificateAuthorityRequest,
    entry: AuditEntry,
  ): Promise<CertificateAuthority> {
    return this.change(async () => {
      const { value } = this.requireAuthority();
      const nowMs = this.deps.clock.wallTime();
      if (isRotating(value) || wasJustCompleted(value, request, nowMs)) return this.present(value);
      const generation = Math.max(...value.roots.map((root) => root.generation)) + 1;
      const { rootPem } = await this.identity.createGeneration(generation);
      const stored = this.requireAuthority();
      if (stored.value !== value) return this.present(stored.value);
      const root = { generation, pem: rootPem };
      const after = startRotation(value, root, nowMs, this.identity.coordinatorId.id);
      await entry.commit(putRotationPhase(this.deps.state.transaction(), stored, after));
      return this.present(after);
    });
  }

  /** @throws kind `precondition` when no rotation runs. */
  skipWait(entry: AuditEntry): Promise<CertificateAuthority> {
    return this.change(async () => {
      const stored = this.requireAuthority();
      if (!isRotating(stored.value)) {
        throw new CloudlessError(
          'precondition',
          'no rotation of the certificate authority runs; begin one with "cloudlessctl admin rotate-ca"',
        );
      }
      await this.requireNewKeys();
      const after = advanceRotation(stored.value, this.deps.clock.wallTime());
      await entry.commit(putRotationPhase(this.deps.state.transaction(), stored, after));
      return this.present(after);
    });
  }

  /**
   * Gives the keys of the trusted generations to another coordinator, and notes that it has those of
   * the new generation, so that the rotation continues. The audit record of a reply with keys is
   * committed before the reply.
   */
  async fetchKeys(
    { storedGenerations }: FetchAuthorityKeysRequest,
    entry: AuditEntry,
  ): Promise<FetchAuthorityKeysResponse> {
    const coordinatorId = entry.caller.principal.name.replace(/^controller\//, '');
    entry.nameObject(`coordinator ${coordinatorId}`);
    const { value } = this.requireAuthority();
    const trusted = value.roots.map(({ generation }) => generation);
    const wanted = trusted.filter((generation) => !storedGenerations.includes(generation));
    if (wanted.length === 0) return this.noteHolder(coordinatorId, entry);
    const keys = await Promise.all(
      wanted.map(async (generation) => {
        const pems = await this.identity.exportKeys(generation);
        return {
          generation,
          rootCertificate: pems.rootPem,
          rootKey: pems.rootKeyPem,
          issuingCertificate: pems.issuingPem,
          issuingKey: pems.issuingKeyPem,
        };
      }),
    );
    await entry.recordStart({});
    return create(FetchAuthorityKeysResponseSchema, { keys });
  }

  private noteHolder(
    coordinatorId: string,
    entry: AuditEntry,
  ): Promise<FetchAuthorityKeysResponse> {
    return this.change(async () => {
      const stored = this.requireAuthority();
      const after = noteKeyHolder(stored.value, coordinatorId);
      if (after !== undefined)
        await entry.commit(
          this.deps.state
            .transaction()
            .require('ca', CERTIFICATE_AUTHORITY_KEY, stored)
            .put('ca', CERTIFICATE_AUTHORITY_KEY, after),
        );
      return create(FetchAuthorityKeysResponseSchema);
    });
  }

  /** @throws kind `precondition` when this coordinator could not issue certificates afterwards. */
  private async requireNewKeys(): Promise<void> {
    const { missing } = await this.identity.listGenerations();
    if (missing.length === 0) return;
    throw new CloudlessError(
      'precondition',
      `this coordinator does not have the keys of generation ${missing.join(', ')} of the certificate authority; hand the leadership to a coordinator that has them with "cloudlessctl admin step-down", or copy the directory of the generation from it`,
    );
  }

  private change<Result>(work: () => Promise<Result>): Promise<Result> {
    return this.deps.mutex.run(SUBJECT, () =>
      retryOnConflict({ ...this.deps, subject: SUBJECT }, work),
    );
  }

  private requireAuthority(): Stored<CertificateAuthorityRecord> {
    const stored = this.deps.state.view().certificateAuthority();
    if (stored !== undefined) return stored;
    throw new CloudlessError('NO_IDENTITIES', NO_IDENTITIES);
  }

  private present(record: CertificateAuthorityRecord): CertificateAuthority {
    const { trustDomain, roots, issuingGeneration, trustBundleGeneration } = record;
    return create(CertificateAuthoritySchema, {
      trustDomain,
      roots: roots.map(({ generation, pem }) =>
        presentRoot(generation, pem, generation === issuingGeneration),
      ),
      trustBundleGeneration,
      trustBundle: roots.map(({ pem }) => pem).join(''),
      ...definedFields({ rotation: this.presentRotation(record) }),
    });
  }

  private presentRotation({
    rotation,
  }: CertificateAuthorityRecord): CertificateAuthorityRotation | undefined {
    if (rotation === undefined) return undefined;
    const progress = getRotationProgress(this.deps.state.view(), this.deps.clock.wallTime());
    const { phase, startedAt, completedAt } = rotation;
    return create(CertificateAuthorityRotationSchema, {
      phase,
      ...definedFields({ startedAt, completedAt }),
      waitingNodes: progress?.waitingNodes.slice(0, MAX_LISTED) ?? [],
      waitingNodeCount: progress?.waitingNodes.length ?? 0,
      waitingUsers: progress?.waitingUsers.slice(0, MAX_LISTED) ?? [],
      waitingCoordinators: [...(progress?.waitingCoordinators ?? [])],
      completedNodeCount: progress?.completedNodes ?? 0,
    });
  }
}

function wasJustCompleted(
  { rotation }: CertificateAuthorityRecord,
  { unlessCompletedWithin }: RotateCertificateAuthorityRequest,
  nowMs: number,
): boolean {
  if (rotation?.completedAt === undefined || unlessCompletedWithin === undefined) return false;
  return nowMs - timestampMs(rotation.completedAt) < durationMs(unlessCompletedWithin);
}

/** The error of every call about identities in a cluster without TLS. */
export const NO_IDENTITIES = 'this cluster has no identities; start the coordinator with --tls on';

function presentRoot(generation: number, pem: string, issues: boolean): RootCertificate {
  const { fingerprint256, validFrom, validTo } = new X509Certificate(pem);
  return create(RootCertificateSchema, {
    generation,
    sha256: fingerprint256.replaceAll(':', '').toLowerCase(),
    notBefore: timestampFromMs(Date.parse(validFrom)),
    notAfter: timestampFromMs(Date.parse(validTo)),
    issues,
  });
}
