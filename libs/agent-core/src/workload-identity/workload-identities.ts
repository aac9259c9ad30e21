import { create } from '@bufbuild/protobuf';
import {
  backoffDelayMs,
  CloudlessError,
  errorFields,
  errorKindOf,
  errorMessageOf,
  noMeter,
  type BackoffPolicy,
  type Clock,
  type Log,
  type Meter,
  type Random,
  type Timer,
} from '@cloudless/base';
import {
  IssueWorkloadCertificateRequestSchema,
  type IssueWorkloadCertificateRequest,
  type WorkloadCertificate,
  type WorkloadSpec,
} from '@cloudless/api';
import type { IdentityDirectory } from '../container/identity-directory.js';
import { renewalTimeMs } from '../identity/node-identity.js';
import { SerialQueue } from '../store/serial-queue.js';
import { toCredentialReader } from './to-credential-reader.js';
import type {
  CredentialReader,
  StoredWorkloadCredential,
  WorkloadIdentityFiles,
} from './workload-identity-files.js';

export interface WorkloadIdentitiesOptions {
  readonly nodeId: string;
  readonly files: WorkloadIdentityFiles;
  /** Creates a key in PEM, and a certificate signing request for the key in DER. */
  readonly createKeyAndCsr: () => Promise<{ readonly keyPem: string; readonly csr: Uint8Array }>;
  /**
   * The IssueWorkloadCertificate call.
   * @throws kind `unavailable` without a session with a coordinator.
   */
  readonly issue: (request: IssueWorkloadCertificateRequest) => Promise<WorkloadCertificate>;
  /** Returns the roots that this node trusts, in PEM; undefined before the node has joined. */
  readonly trustBundlePem: () => string | undefined;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly meter?: Meter;
}

/** Delay between attempts to renew a certificate. */
const RENEWAL_BACKOFF: BackoffPolicy = { firstMs: 500, maxMs: 60_000, jitter: 0.2 };
/**
 * Largest delay of a timer, milliseconds. A later renewal takes several timers, because the wall
 * clock may be set meanwhile, or the machine may sleep.
 */
const MAX_TIMER_MS = 10 * 60 * 1_000;
/**
 * Number of certificates that are renewed at the same time after a change of the certificate
 * authority: the coordinator serves every node of the cluster then.
 */
const RENEWAL_CONCURRENCY = 4;

/** State of one replica. */
interface Entry {
  readonly reader: CredentialReader;
  readonly directory: IdentityDirectory;
  /** Credential in the files. */
  stored: StoredWorkloadCredential;
  /** Time of the renewal, milliseconds since the Unix epoch. */
  readonly renewAtMs: number;
  timer: Timer | undefined;
  failures: number;
}

/**
 * Keeps a certificate of its workload for each replica that requests an identity: from before the
 * start of the first container until the replica is forgotten.
 */
export class WorkloadIdentities {
  private readonly entries = new Map<string, Entry>();
  /** Changes of the files of one replica run one after the other. */
  private readonly queues = new Map<string, SerialQueue>();
  private readonly certificates: ReturnType<Meter['counter']>;
  private isClosed = false;

  constructor(private readonly options: WorkloadIdentitiesOptions) {
    this.certificates = (options.meter ?? noMeter).counter({
      name: 'cloudless_agent_replica_certificates_total',
      help: 'Certificates of replicas of this node, by result: issued before a start, renewed, or failed attempts of either',
      labels: ['result'],
    });
  }

  /**
   * Returns the directory of a replica; undefined before {@link prepare} or {@link restore} for the
   * replica.
   */
  findDirectory(replicaId: string): IdentityDirectory | undefined {
    return this.entries.get(replicaId)?.directory;
  }

  /**
   * Provides a certificate before a container is started. A certificate that is still valid is kept,
   * so that a restart in place needs no coordinator.
   * @throws when there is no valid certificate and none can be obtained; kind `unavailable` when a
   *   retry may succeed.
   */
  prepare(replicaId: string, spec: Pick<WorkloadSpec, 'security'>): Promise<void> {
    return this.run(replicaId, async () => {
      const reader = toCredentialReader(spec);
      const directory = await this.options.files.open(replicaId);
      const found = await this.options.files.read(replicaId);
      const isValid = found !== undefined && this.wallTime() < found.notAfterMs;
      try {
        const stored = isValid ? found : await this.obtain(replicaId, reader, 'issued');
        this.follow(replicaId, { reader, directory, stored });
      } catch (reason) {
        const kind = errorKindOf(reason);
        const message = `spec.identity: no certificate for the replica: ${errorMessageOf(reason)}`;
        throw new CloudlessError(kind, message, { cause: reason });
      }
    });
  }

  /**
   * Goes on with the replicas of an earlier agent, and removes the files of all others.
   * @param replicas - The replicas of this node that request an identity, with their specs.
   */
  async restore(replicas: ReadonlyMap<string, Pick<WorkloadSpec, 'security'>>): Promise<void> {
    for (const replicaId of await this.options.files.list()) {
      try {
        await this.run(replicaId, () => this.restoreOne(replicaId, replicas.get(replicaId)));
      } catch (reason) {
        this.options.log.warn('identity of the replica not restored', {
          replicaId,
          ...errorFields(reason),
        });
      }
    }
  }

  /**
   * Writes the newest roots to the files of every replica, then renews every certificate, because
   * the issuing key may have changed. Never rejects. Resolves when each renewal has succeeded or
   * failed once; a failed renewal is repeated later.
   */
  async renewAll(): Promise<void> {
    const replicaIds = [...this.entries.keys()];
    await forEachConcurrently(replicaIds, (replicaId) => this.updateBundle(replicaId));
    await forEachConcurrently(replicaIds, (replicaId) => this.renew(replicaId));
  }

  /** Removes the certificate and the key of a replica. */
  async remove(replicaId: string): Promise<void> {
    await this.run(replicaId, async () => {
      this.entries.get(replicaId)?.timer?.cancel();
      this.entries.delete(replicaId);
      await this.options.files.remove(replicaId);
    });
    this.queues.delete(replicaId);
  }

  /** Removes the certificates and keys of all replicas. */
  async removeAll(): Promise<void> {
    for (const replicaId of await this.options.files.list()) await this.remove(replicaId);
  }

  /** Ends the renewals. The files stay, because the containers keep running. */
  close(): void {
    this.isClosed = true;
    for (const { timer } of this.entries.values()) timer?.cancel();
  }

  private async restoreOne(
    replicaId: string,
    spec: Pick<WorkloadSpec, 'security'> | undefined,
  ): Promise<void> {
    const { files } = this.options;
    const stored = spec === undefined ? undefined : await files.read(replicaId);
    // Without a credential no container of the replica was started.
    if (spec === undefined || stored === undefined) return files.remove(replicaId);
    const directory = await files.open(replicaId);
    this.follow(replicaId, { reader: toCredentialReader(spec), directory, stored });
    const bundlePem = this.options.trustBundlePem();
    if (bundlePem === undefined || bundlePem === stored.bundlePem) return;
    // The agent ended after it had stored new roots and before all files had them.
    void this.updateBundle(replicaId).then(() => this.renew(replicaId));
  }

  private follow(
    replicaId: string,
    { reader, directory, stored }: Pick<Entry, 'reader' | 'directory' | 'stored'>,
  ): void {
    this.entries.get(replicaId)?.timer?.cancel();
    const renewAtMs = renewalTimeMs(stored, this.options.random.next());
    const entry: Entry = { reader, directory, stored, renewAtMs, timer: undefined, failures: 0 };
    this.entries.set(replicaId, entry);
    this.schedule(replicaId, entry, renewAtMs - this.wallTime());
  }

  private schedule(replicaId: string, entry: Entry, delayMs: number): void {
    if (this.isClosed) return;
    const waitMs = Math.min(Math.max(0, delayMs), MAX_TIMER_MS);
    entry.timer?.cancel();
    entry.timer = this.options.clock.setTimer(waitMs, () => {
      if (this.entries.get(replicaId) !== entry) return;
      const remainingMs = entry.renewAtMs - this.wallTime();
      if (entry.failures === 0 && remainingMs > 0) this.schedule(replicaId, entry, remainingMs);
      else void this.renew(replicaId);
    });
  }

  /** Renews the certificate of a replica. After a failure, schedules the next attempt. */
  private async renew(replicaId: string): Promise<void> {
    await this.run(replicaId, async () => {
      const entry = this.entries.get(replicaId);
      if (entry === undefined || this.isClosed) return;
      try {
        const stored = await this.obtain(replicaId, entry.reader, 'renewed');
        this.follow(replicaId, { ...entry, stored });
        this.options.log.info('certificate of the replica renewed', {
          replicaId,
          notAfter: new Date(stored.notAfterMs).toISOString(),
        });
      } catch (reason) {
        this.logFailure(replicaId, reason);
        entry.failures += 1;
        const delayMs = backoffDelayMs(RENEWAL_BACKOFF, entry.failures, this.options.random);
        this.schedule(replicaId, entry, delayMs);
      }
    });
  }

  /** Obtains a certificate for a new key, writes both, and counts the result. */
  private async obtain(
    replicaId: string,
    reader: CredentialReader,
    success: 'issued' | 'renewed',
  ): Promise<StoredWorkloadCredential> {
    try {
      const stored = await this.requestAndWrite(replicaId, reader);
      this.certificates.add(1, { result: success });
      return stored;
    } catch (reason) {
      this.certificates.add(1, { result: 'failed' });
      throw reason;
    }
  }

  private async requestAndWrite(
    replicaId: string,
    reader: CredentialReader,
  ): Promise<StoredWorkloadCredential> {
    const { createKeyAndCsr, issue, files, nodeId } = this.options;
    const { keyPem, csr } = await createKeyAndCsr();
    const { certificateChain, trustBundle } = await issue(
      create(IssueWorkloadCertificateRequestSchema, { nodeId, replicaId, csr }),
    );
    const bundlePem = trustBundle?.pem ?? '';
    if (certificateChain === '' || bundlePem === '')
      throw new CloudlessError(
        'invalid',
        'the coordinator sent a certificate without its chain or the trusted roots; update the coordinator or the agent, so that both have the same version',
      );
    const obtainedAtMs = this.wallTime();
    const credential = { chainPem: certificateChain, keyPem, bundlePem, obtainedAtMs };
    return files.write(replicaId, credential, reader);
  }

  /** Writes the newest roots to the files of a replica when they are others. */
  private async updateBundle(replicaId: string): Promise<void> {
    await this.run(replicaId, async () => {
      const entry = this.entries.get(replicaId);
      const bundlePem = this.options.trustBundlePem();
      if (entry === undefined || bundlePem === undefined || entry.stored.bundlePem === bundlePem)
        return;
      try {
        const { stored, reader } = entry;
        entry.stored = await this.options.files.write(replicaId, { ...stored, bundlePem }, reader);
      } catch (reason) {
        this.logFailure(replicaId, reason);
      }
    });
  }

  private logFailure(replicaId: string, reason: unknown): void {
    const entry = this.entries.get(replicaId);
    // One warning for each outage, and one when the certificate has expired.
    const isExpired = entry !== undefined && entry.stored.notAfterMs <= this.wallTime();
    const level =
      entry === undefined || entry.failures === 0 ? 'warn' : isExpired ? 'error' : 'debug';
    this.options.log[level]('certificate of the replica not renewed', {
      replicaId,
      ...(entry === undefined ? {} : { notAfter: new Date(entry.stored.notAfterMs).toISOString() }),
      ...errorFields(reason),
    });
  }

  private run<Result>(replicaId: string, task: () => Promise<Result>): Promise<Result> {
    const queue = this.queues.get(replicaId) ?? new SerialQueue();
    this.queues.set(replicaId, queue);
    return queue.run(task);
  }

  private wallTime(): number {
    return this.options.clock.wallTime();
  }
}

/** Runs `task` for every item, at most {@link RENEWAL_CONCURRENCY} at the same time. */
async function forEachConcurrently<Item>(
  items: readonly Item[],
  task: (item: Item) => Promise<void>,
): Promise<void> {
  const waiting = [...items];
  const runNext = async (): Promise<void> => {
    for (let item = waiting.shift(); item !== undefined; item = waiting.shift()) await task(item);
  };
  await Promise.all(Array.from({ length: RENEWAL_CONCURRENCY }, runNext));
}
